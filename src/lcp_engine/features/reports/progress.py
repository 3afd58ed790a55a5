"""Measure how far a mission has come, from the names of its events alone (pure).

The measure of one moment is the share of the known work that is done, as if `MARGIN` more jobs were always to come: a
planner never says how much it will ask for. The percentage is the highest measure of any moment so far, so it never
falls; it is 100 from the moment on in which the mission is completed, and less before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from lcp_engine.core.job_states import (
    ANSWER,
    BLOCK,
    FAIL,
    HOLD,
    PLAN_FAIL,
    PLAN_SUCCEED,
    QUEUE,
    REJECT,
    RETRY,
    RETRY_HELD,
    SUCCEED,
)

Milestone: TypeAlias = Literal["25%", "50%", "75%", "100%"]

MILESTONES: tuple[tuple[int, Milestone], ...] = ((100, "100%"), (75, "75%"), (50, "50%"), (25, "25%"))
MARGIN = 5
"""As many jobs as a reply asks for at most by default."""
ADDS = tuple(transition.event for transition in (QUEUE, HOLD, BLOCK, RETRY, RETRY_HELD))
DOES = tuple(transition.event for transition in (SUCCEED, FAIL, PLAN_SUCCEED, PLAN_FAIL, ANSWER, REJECT))
COMPLETED = "mission_completed"
COUNTED = (*ADDS, *DOES, COMPLETED)


def milestone_of(before: int, now: int) -> Milestone | None:
    """The highest milestone above `before` that `now` has reached."""
    return next((name for share, name in MILESTONES if before < share <= now), None)


@dataclass(frozen=True, slots=True)
class Measure:
    """How far one mission has come with its events so far; the default is before its first."""

    percentage: int = 0
    known: int = 0
    done: int = 0

    def after(self, event: str) -> Measure:
        """The measure with the next event."""
        if event not in COUNTED:
            return self
        known, done = self.known + (event in ADDS), self.done + (event in DOES)
        now = 100 if event == COMPLETED else 100 * done // (known + MARGIN)
        return Measure(max(self.percentage, now), known, done)
