"""The points at which features take part in the course of plans and missions, as values that they register."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from lcp_engine.core.decide import End
from lcp_engine.core.follow import Ends, Stated
from lcp_engine.errors import Failed
from lcp_engine.features import ASKERS, END_GATES, STEPS, load
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow


@dataclass(frozen=True, kw_only=True)
class PlanType:
    """The course of plans that no planner continues. Called in the transaction of the event; what raises fails that.

    `look` finds the failures of a plan, `note_fault` keeps the first of them, `skip_rest` skips what has not begun,
    `replace` begins the fallback, `end` and `result` say how a plan ends that has nothing left. `begin` lets a step
    begin, or skips it and is False; `is_handled` is true of a failure that another step waits for.
    """

    look: Callable[[Ledger, PlanRow, JobRow | None], Stated]
    note_fault: Callable[[PlanRow, JobRow], None]
    skip_rest: Callable[[Ledger, PlanRow], None]
    replace: Callable[[Ledger, PlanRow], None]
    end: Callable[[Ledger, PlanRow], tuple[End, Failed | None]]
    result: Callable[[Ledger, PlanRow, End], str]
    begin: Callable[[Ledger, JobRow], bool]
    is_handled: Callable[[Ledger, JobRow], bool]


@dataclass(frozen=True)
class Asker:
    """A kind of jobs with which a person is asked about the end of a mission; None where its plan goes on."""

    answered: Callable[[Ledger, JobRow], Ends | None]


@dataclass(frozen=True)
class EndGate:
    """A condition of the end of missions. A mission that it concerns ends successfully only once it was asked."""

    concerns: Callable[[MissionRow], bool]
    ask: Callable[[Ledger, MissionRow, PlanRow, End, int | None], None]


@cache
def steps() -> PlanType:
    return load(STEPS, PlanType)


@cache
def asker_of(kind: str) -> Asker | None:
    """Asker with jobs of this kind; None for most kinds."""
    return load(ASKERS[kind], Asker) if kind in ASKERS else None


@cache
def end_gates() -> Sequence[EndGate]:
    return tuple(load(place, EndGate) for place in END_GATES)


def load_points() -> None:
    """Load what the shipped features add: a confined thread can no longer open their modules."""
    steps(), end_gates(), [*map(asker_of, ASKERS)]
