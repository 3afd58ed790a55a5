"""Decide what a plan does after one of its jobs was settled, rejected or held (R7, R8, R27).

Pure: no clock, no database, no randomness, no kind names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from lcp_engine.core.decide import End
from lcp_engine.errors import Failed


class Event(Enum):
    """The event that is followed: of a job of the plan, or for `HELD` of those that the plan is left with."""

    SETTLED = "settled"
    REJECTED = "rejected"
    HELD = "held"


class Cause(Enum):
    """A reason to end a plan that is not the answer of a person to a question about its end."""

    JOB_FAILED = "job_failed"
    """A job failed, and the mission says that it fails with it."""
    NO_REPLY = "no_reply"
    """A person refused to reply to a turn: the plan of that turn ends as if its planner had failed."""
    NOTHING_LEFT = "nothing_left"
    """Every step of a stated plan has ended."""


@dataclass(frozen=True)
class GoOn:
    """Nothing changes but the status of the mission."""


@dataclass(frozen=True)
class Releases:
    """Let the jobs that wait for this one begin, or skip them; then follow again, since that may settle or queue jobs.

    `is_fault`: the plan remembers the job as its failure, unless an earlier one is.
    """

    is_fault: bool = False


@dataclass(frozen=True)
class AskNext:
    """Queue the next turn of the plan."""


@dataclass(frozen=True)
class Changes:
    """Carry out what a person decided about a limit; the turn that waited for that goes on."""


@dataclass(frozen=True)
class Ends:
    """End the plan as a person answered, or for `of_mission` the mission. `claimed_in` is the question of the claim."""

    end: End
    failed: Failed | None = None
    claimed_in: int | None = None
    of_mission: bool = False


@dataclass(frozen=True)
class EndsBy:
    """End the plan for this cause; the words are composed where counts and errors can be read."""

    cause: Cause


@dataclass(frozen=True)
class Stops:
    """Begin no further step of a stated plan: skip those that wait; then follow again.

    `is_fault`: because of this job, which the plan remembers as its failure, and plans begun by its steps end with it.
    """

    is_fault: bool


@dataclass(frozen=True)
class Replaces:
    """Begin the plan that a stopped one falls back to."""


Followup: TypeAlias = GoOn | Releases | AskNext | Changes | Ends | EndsBy | Stops | Replaces

GO_ON, ASK_NEXT, REPLACES = GoOn(), AskNext(), Replaces()
RELEASES, RELEASES_FAULT = Releases(), Releases(is_fault=True)
STOPS, STOPS_REST = Stops(is_fault=True), Stops(is_fault=False)
NO_REPLY, JOB_FAILED, NOTHING_LEFT = map(EndsBy, (Cause.NO_REPLY, Cause.JOB_FAILED, Cause.NOTHING_LEFT))


class Stated(NamedTuple):
    """The failures of a stated plan.

    `is_fault`: the job is a failed step that no condition of another one handles; `is_tolerant`: that does not stop the
    plan; `is_stopped`: one has stopped it; `falls_back`: then another plan takes its place.
    """

    is_fault: bool = False
    is_tolerant: bool = False
    is_stopped: bool = False
    falls_back: bool = False


class Situation(NamedTuple):
    """All that `follow` needs of a plan whose mission has not ended, and of its job.

    `is_released`: the `Releases` or `Stops` of this event was carried out. `answered` follows from what a person
    answered to a question of the engine; `is_refused`: the job is a turn that a person does not reply to.
    `fails_mission`: the job failed, and the mission says that it fails with it. `has_ended`: the plan; `open` and
    `held` count its jobs. `steps` is None for the plan of a planner, `continues` the mission's `continue`.

    Read only while jobs are held: `is_asking` (one of them is a turn) if none is open, `waits_behind` (a job waits for
    this one) of a step, `has_news` (since the last question) when that job was held.
    """

    event: Event
    is_released: bool = False
    answered: Changes | Ends | None = None
    is_refused: bool = False
    fails_mission: bool = False
    has_ended: bool = False
    open: int = 0
    held: int = 0
    steps: Stated | None = None
    continues: str = "per_batch"
    is_asking: bool = False
    waits_behind: bool = False
    has_news: bool = False


def follow(of: Situation) -> Followup:
    """Return what follows. Total: there is one for every situation (the table in docs/rules.md)."""
    if of.answered is not None:
        return of.answered
    if of.is_refused:
        return NO_REPLY
    if of.steps is not None:
        return _follow_step(of, of.steps)
    if of.event is Event.HELD or of.is_released:
        return ASK_NEXT if _is_next_turn_due(of) else GO_ON
    return JOB_FAILED if of.fails_mission and of.event is Event.SETTLED else RELEASES


def _is_next_turn_due(of: Situation) -> bool:
    if of.has_ended:
        return False
    is_at_rest = of.open == 0 and not of.is_asking
    awaits_decision = of.continues == "per_decision" and of.held > 0
    if of.event is Event.SETTLED:  # the job behind a step continues the plan, not another turn
        is_due = of.continues == "per_result" or (is_at_rest and not awaits_decision)
        return is_due and not of.waits_behind
    if of.event is Event.REJECTED:
        return is_at_rest and of.held == 0
    return is_at_rest and (of.held == 0 or (of.has_news and not awaits_decision))


def _follow_step(of: Situation, plan: Stated) -> Followup:
    if not of.is_released:
        if of.event is Event.HELD:
            return STOPS_REST if plan.is_stopped else GO_ON
        if plan.is_fault and not plan.is_tolerant:
            return STOPS
        if not plan.is_stopped:
            return RELEASES_FAULT if plan.is_fault else RELEASES
    if of.has_ended or of.open > 0 or of.held > 0:
        return GO_ON
    return REPLACES if plan.is_stopped and plan.falls_back else NOTHING_LEFT
