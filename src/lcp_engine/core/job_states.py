"""Job states, roles, and every transition between two states (R16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of a job. Those in `SETTLED` are final unless a person retries the job."""

    HELD = "held"
    BLOCKED = "blocked"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class Role(StrEnum):
    """Part of a job in its plan: `TURN` asks a question of it, `STEP` begins a plan of its own, the rest is `WORK`."""

    WORK = "work"
    TURN = "turn"
    STEP = "step"


class Need(StrEnum):
    """Need of a step for one before it: that it succeeds, that it fails or is rejected, or only that it ends."""

    SUCCESS = "success"
    FAILURE = "failure"
    END = "end"


SETTLED = frozenset({State.SUCCEEDED, State.FAILED, State.REJECTED, State.SKIPPED, State.CANCELLED})
OPEN = frozenset({State.QUEUED, State.RUNNING})


_FULFILS: Mapping[State, tuple[Need, ...]] = {
    State.SUCCEEDED: (Need.SUCCESS, Need.END),
    State.FAILED: (Need.FAILURE, Need.END),
    State.REJECTED: (Need.FAILURE, Need.END),
    State.SKIPPED: (Need.END,),
    State.CANCELLED: (Need.END,),
}


def fulfils(state: State) -> tuple[Need, ...]:
    """The needs that a job in this state fulfils; none while it is not settled."""
    return _FULFILS.get(state, ())


@dataclass(frozen=True)
class Transition:
    """A named change of state; the name is the event that it leaves in the history."""

    event: str
    sources: frozenset[State]
    target: State


def _from(*sources: State) -> frozenset[State]:
    return frozenset(sources)


QUEUE = Transition("queued", _from(), State.QUEUED)
HOLD = Transition("held", _from(), State.HELD)
BLOCK = Transition("blocked", _from(), State.BLOCKED)
REFUSE = Transition("refused", _from(), State.REJECTED)

APPROVE = Transition("approved", _from(State.HELD), State.QUEUED)
APPROVE_BLOCKED = Transition("approved_in_turn", _from(State.HELD), State.BLOCKED)
BRING = Transition("reply_brought", _from(State.HELD), State.QUEUED)
REJECT = Transition("rejected", _from(State.HELD), State.REJECTED)
ANSWER = Transition("answered", _from(State.HELD), State.SUCCEEDED)
UNBLOCK = Transition("unblocked", _from(State.BLOCKED), State.QUEUED)
START = Transition("started", _from(State.QUEUED), State.RUNNING)
SUCCEED = Transition("succeeded", _from(State.RUNNING), State.SUCCEEDED)
FAIL = Transition("failed", _from(State.RUNNING), State.FAILED)
BACK_OFF = Transition("backed_off", _from(State.RUNNING), State.QUEUED)
RELEASE = Transition("released", _from(State.RUNNING), State.QUEUED)
RESCUE = Transition("rescued", _from(State.RUNNING), State.QUEUED)
HOLD_AGAIN = Transition("held_again", _from(State.RUNNING), State.HELD)
DELEGATE = Transition("delegated", _from(State.RUNNING), State.BLOCKED)
STOP_AT_LIMIT = Transition("stopped_at_limit", _from(State.RUNNING), State.BLOCKED)
PLAN_SUCCEED = Transition("plan_succeeded", _from(State.BLOCKED), State.SUCCEEDED)
PLAN_FAIL = Transition("plan_failed", _from(State.BLOCKED), State.FAILED)
AGENT_ASKS = Transition("permission_asked", _from(State.BLOCKED), State.HELD)
AGENT_DID = Transition("done_by_agent", _from(State.BLOCKED), State.SUCCEEDED)
AGENT_FAILED = Transition("failed_by_agent", _from(State.BLOCKED), State.FAILED)
SKIP = Transition("skipped", _from(State.HELD, State.BLOCKED, State.QUEUED), State.SKIPPED)
CANCEL = Transition(
    "cancelled", _from(State.HELD, State.BLOCKED, State.QUEUED, State.RUNNING), State.CANCELLED
)
RETRY = Transition("retried", _from(State.FAILED, State.CANCELLED, State.SKIPPED), State.QUEUED)
RETRY_HELD = Transition("retried_held", _from(State.CANCELLED, State.SKIPPED, State.REJECTED), State.HELD)
RETRY_BLOCKED = Transition(
    "retried_in_turn", _from(State.FAILED, State.CANCELLED, State.SKIPPED), State.BLOCKED
)

CREATIONS = {t.target: t for t in (QUEUE, HOLD, BLOCK, REFUSE)}
TRANSITIONS = (
    *CREATIONS.values(), APPROVE, APPROVE_BLOCKED, BRING, REJECT, ANSWER, UNBLOCK, START, SUCCEED, FAIL, BACK_OFF,
    RELEASE, RESCUE, HOLD_AGAIN, DELEGATE, STOP_AT_LIMIT, PLAN_SUCCEED, PLAN_FAIL, AGENT_ASKS, AGENT_DID,
    AGENT_FAILED, SKIP, CANCEL, RETRY, RETRY_HELD, RETRY_BLOCKED,
)  # fmt: skip
