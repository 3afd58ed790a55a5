"""State how jobs are executed that no call of a worker executes: what a feature registers, and a runner keeps open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from pydantic import BaseModel

from lcp_engine.changes.journal import Tracker
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.settle import FinishedJob
from lcp_engine.errors import Failed
from lcp_engine.feature import load
from lcp_engine.planners.base import Question
from lcp_engine.runner.confined.channel import Attempt
from lcp_engine.runner.confined.checks import Undecided
from lcp_engine.runner.open_missions import OpenMission, OpenMissions
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Context, FileEffect, Hold, Kept, Outcome, Worker


class Executing(Protocol):
    """Executor of such jobs for one runner, open until `close`. Any thread may call."""

    @property
    def attempts(self) -> frozenset[Attempt]:
        """Attempts under way that can be ended."""

    def end(self, attempts: Iterable[Attempt]) -> None:
        """End these; nobody waits for what they answer."""

    def close(self) -> None: ...

    def permit(self, worker: Worker[BaseModel]) -> AbstractContextManager[None]:
        """Wait until another group of the kind's jobs may be executed."""

    def may_repeat(self, worker: Worker[BaseModel]) -> bool:
        """True if a job may be executed again at once: it finds what its last execution has kept."""

    def execute(
        self,
        job: JobRow,
        worker: Worker[BaseModel],
        mission: OpenMission,
        params: BaseModel,
        context: Context,
    ) -> Succeeded | FileEffect | Hold | Failed: ...

    def execute_ahead(
        self, jobs: Sequence[JobRow], worker: Worker[BaseModel], tracker: Tracker
    ) -> Sequence[FinishedJob | None]:
        """The outcomes of several jobs of a mission that are sent together; None for those that are executed alone.

        Each is started before its outcome is waited for; where one no longer is to start, the rest is left.
        """

    def ask(self, job: JobRow, mission: OpenMission, question: Question) -> object:
        """Answer of the mission's planner, not validated: its code may be a plug-in's."""

    def fault_of_check(
        self, job: JobRow, mission: OpenMission, spec: MissionSpec, command: Sequence[str]
    ) -> str | Undecided | None:
        """Reason why the command of an acceptance check does not pass; None if it does."""


@dataclass(frozen=True)
class ExecutionType:
    """A way to execute such jobs: for a runner, and one outside of missions.

    `execute_once` is given which files may be read, and raises what a worker may raise.
    """

    open: Callable[[Instance, OpenMissions, ConfinedThreads], Executing]
    execute_once: Callable[[Worker[BaseModel], BaseModel, Context, Callable[[str], bool]], Outcome | Kept]


@cache
def execution_at(place: str) -> ExecutionType:
    """The value at a place, as "module:attribute"."""
    return load(place, ExecutionType)
