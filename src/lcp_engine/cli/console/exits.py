"""The exit codes of all commands, and which one a mission or an error has."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from lcp_engine import MissionStatus
from lcp_engine.core.job_states import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcp_engine import Mission
    from lcp_engine.api.history import History


class Exit(IntEnum):
    """The exit codes of all commands; scripts may branch on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    LIMIT = 4
    CONFLICT = 5
    INTERRUPTED = 130


MEANINGS: Mapping[Exit, str] = {
    Exit.DONE: "done",
    Exit.FAILED: "the mission failed or was cancelled, or the command failed: what it names does not exist or is not "
    "valid, or the work was not done",
    Exit.USAGE: "wrong usage: an unknown command or option, a missing argument, or a value that cannot be used",
    Exit.WAITING: "the mission waits for a person",
    Exit.LIMIT: "the mission ended on a limit or without progress, or completed with an effect unfulfilled "
    "or a step failed",
    Exit.CONFLICT: "conflict: a job, mission or file is in a state that does not allow it, or is not what was approved",
    Exit.INTERRUPTED: "interrupted",
}
"""As docs/interface.md lists them."""


def exit_of_mission(history: History, mission: Mission) -> Exit:
    """The exit code for a mission that no runner is working on."""
    match mission.status:
        case MissionStatus.COMPLETED if mission.unfulfilled:
            return Exit.WAITING if held_effects(history, mission) else Exit.LIMIT
        case MissionStatus.COMPLETED:
            return Exit.LIMIT if mission.outcome == "plan_incomplete" else Exit.DONE
        case MissionStatus.RUNNING | MissionStatus.WAITING:
            return Exit.WAITING
        case MissionStatus.FAILED if mission.outcome is not None and (
            mission.outcome.startswith("limit:") or mission.outcome == "no_progress"
        ):
            return Exit.LIMIT
        case _:
            return Exit.FAILED


def held_effects(history: History, mission: Mission) -> list[int]:
    """Those of the mission's unfulfilled jobs that a person can still approve."""
    if not (mission.unfulfilled and mission.jobs.get(State.HELD)):
        return []
    held = {job.id for job in history.jobs(mission_id=mission.id, states=[State.HELD])}
    return [number for number in mission.unfulfilled if number in held]
