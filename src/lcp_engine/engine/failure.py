"""Failures in their stored form (R15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated
from uuid import uuid4

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from lcp_engine.clock import Micros, iso
from lcp_engine.core.decide import End, Outcome
from lcp_engine.core.protocol.actions import Action, ErrorAction, Malformed
from lcp_engine.errors import GENERAL, AgentError, Code, ErrorCode, Failed, Json
from lcp_engine.feature import find_code
from lcp_engine.planners.base import CompletionRecord
from lcp_engine.store.db.json_text import to_json

_CODES: Mapping[str, Code] = {
    Outcome.ERROR: ErrorCode.PLANNER_GAVE_UP,
    Outcome.INVALID_REPLY: ErrorCode.INVALID_REPLY,
    Outcome.JOB_FAILED: ErrorCode.WORKER_FAILED,
    Outcome.NO_PROGRESS: ErrorCode.NO_PROGRESS,
}

_ATTEMPTED = "attempted_action"
"""What a planner that gave up had tried, in its own words."""

MAX_TOKENS = 2**53
"""What one question may cost: a thousand of them still fit the mission's column."""


WAITED = "max_wait"
"""A detail of a failure: its question has waited for its server so many seconds, and is not asked again."""


def paid_tokens(failed: Failed) -> tuple[int, int] | None:
    """Input and output tokens of a question that got no reply, as its planner states them; None if it does not."""
    stated = [failed.details.get(name) for name in ("input_tokens", "output_tokens")]
    counts = [count for count in stated if type(count) is int and 0 <= count < MAX_TOKENS]
    return (counts[0], counts[1]) if len(counts) == 2 and any(counts) else None


_RECORDS = TypeAdapter(Annotated[list[CompletionRecord], Field(max_length=1000)])


def completions_of(records: object, attempt: int) -> list[JsonValue] | None:
    """The requests to a model of one attempt, as they are stored; None if these are not records."""
    try:
        if not isinstance(records, Sequence):
            return None
        whole = _RECORDS.validate_python(
            [asdict(record) for record in records if isinstance(record, CompletionRecord)]
        )
    except (ValidationError, TypeError):
        return None
    if len(whole) != len(records):
        return None
    return [{"attempt": attempt, **made} for made in _RECORDS.dump_python(whole, mode="json")]


def agent_error(failed: Failed, mission_uid: str, now: Micros) -> str:
    """`failed` as it is stored: an `AgentError` in JSON."""
    error = AgentError.of(failed, error_id=f"err-{uuid4()}", request_id=mission_uid, timestamp=iso(now))
    attempted = failed.details.get(_ATTEMPTED)
    if attempted is not None:
        tried: Json = {_ATTEMPTED: attempted}
        advice = [{**action, "details": tried} for action in error.recommended_actions]
        error = replace(error, recommended_actions=[*advice])
    return to_json(error.as_json())


def failure_of(end: End, mission_id: int, reply: Action | Malformed | None = None) -> Failed:
    """Reason why a plan has failed; a planner that gives up may name one of our codes, and what helps."""
    code = end.code or _CODES.get(end.outcome, ErrorCode.LIMIT_REACHED)
    details: dict[str, Json] = {"outcome": end.outcome}
    advice = _advice(end, mission_id)
    if isinstance(reply, ErrorAction):
        said = reply.model_dump(exclude_none=True, exclude={"ok", "action", "error", "commentary"})
        details |= said
        named = find_code(reply.error_code or "")
        code = code if named is None or named.meaning.is_own else named
        advice = _own_advice(reply, mission_id) or advice
    if isinstance(reply, Malformed):
        details["errors"] = _problems(reply)
    return Failed(code, end.message or end.outcome, details, advice)


def _own_advice(reply: ErrorAction, mission_id: int) -> str | None:
    """Advice in the planner's own words; None if it said nothing of it."""
    recovery, attempted = (
        (text or "").strip() for text in (reply.recovery_suggestion, reply.attempted_action)
    )
    if recovery or not attempted:
        return recovery or None
    resume = f"`lcp resume {mission_id}`"
    return f"Correct what stood in the way of this: {attempted}; then resume mission {mission_id} ({resume})."


def _advice(end: End, mission_id: int) -> str | None:
    """Advice after that end; None if the advice of the code does."""
    resume = f"`lcp resume {mission_id}`"
    if end.code is not None:
        return None
    if end.limit is not None:
        higher = f"`lcp resume {mission_id} --set limits.{end.limit}=N`"
        return f"Resume mission {mission_id} with a higher {end.limit} ({higher})."
    if end.outcome == Outcome.NO_PROGRESS:
        told = f"{resume}, `lcp say {mission_id} TEXT`"
        return f"Resume mission {mission_id} and tell its planner what to do instead ({told})."
    if end.outcome == Outcome.INVALID_REPLY:
        return f"Read the errors of its last turns, correct the planner, then resume mission {mission_id} ({resume})."
    return f"Correct what the message names, then resume mission {mission_id} ({resume})."


def malformed_error(malformed: Malformed) -> Failed:
    """A reply that cannot be read, with every reason."""
    first = malformed.errors[0].message if malformed.errors else "it is not one LCP action"
    return Failed(
        malformed.code or ErrorCode.INVALID_REPLY,
        f"the reply is not valid: {first}",
        {"errors": _problems(malformed)},
        advice=GENERAL,
    )


def _problems(malformed: Malformed) -> list[Json]:
    return [error.record for error in malformed.errors]
