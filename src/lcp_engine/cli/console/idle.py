"""Say that work is queued and no runner executes it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lcp_engine.cli.console.output import print_err
from lcp_engine.core.job_states import State

if TYPE_CHECKING:
    from lcp_engine import Mission
    from lcp_engine.api.history import History
    from lcp_engine.cli.base import Invocation

NOTICE = "nothing is working on this database: start `lcp work`"
LOOK_SECONDS = 2.0
"""How often `IdleWatch` looks for runners. A runner of another machine that dies counts as working for up to 90 s."""


def note_idle(invocation: Invocation, history: History, missions: Iterable[Mission]) -> None:
    """Print the notice on stderr if one of these missions has jobs to run and no runner works."""
    is_silent = invocation.json or invocation.quiet
    if not is_silent and any(map(_has_work, missions)) and not history.runners():
        print_err(NOTICE)


def advise(invocation: Invocation, history: History, text: str) -> None:
    """Print on stderr how to continue, unless a runner does so already."""
    if not (invocation.json or invocation.quiet) and not history.runners():
        print_err(text)


class IdleWatch:
    """Prints the notice each time the last runner has gone while a mission has jobs to run."""

    def __init__(self, invocation: Invocation, history: History) -> None:
        self._is_silent = invocation.json or invocation.quiet
        self._history = history
        self._next_look = 0.0
        self._has_runner = True

    def look(self, mission_id: int | None) -> None:
        """Look for runners, unless that was done a moment ago. None: any mission may have jobs to run."""
        now = time.monotonic()
        if self._is_silent or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        had_runner, self._has_runner = self._has_runner, bool(self._history.runners())
        if had_runner and not self._has_runner:
            if self._finds_work(mission_id):
                print_err(NOTICE)
            else:
                self._has_runner = True  # to be told once there is work

    def _finds_work(self, mission_id: int | None) -> bool:
        if mission_id is not None:
            return _has_work(self._history.mission(mission_id))
        return bool(self._history.jobs(states=[State.QUEUED], limit=1))


def _has_work(mission: Mission) -> bool:
    return mission.jobs.get(State.QUEUED, 0) + mission.jobs.get(State.RUNNING, 0) > 0
