"""Failures in their stored form (R15)."""

from __future__ import annotations

from uuid import uuid4

from lcp_engine.clock import Micros, iso
from lcp_engine.core.decide import End
from lcp_engine.core.protocol.actions import Action, ErrorAction, Malformed
from lcp_engine.errors import AgentError, ErrorCode, Failed, Json
from lcp_engine.store.db.json_text import to_json

_CODES = {
    "error": ErrorCode.PLANNER_FAILED,
    "invalid_reply": ErrorCode.INVALID_REPLY,
    "job_failed": ErrorCode.WORKER_FAILED,
}


MAX_TOKENS = 2**53
"""What one question may cost: a thousand of them still fit the mission's column."""


def paid_tokens(failed: Failed) -> tuple[int, int] | None:
    """Input and output tokens of a question that got no reply, as its planner states them; None if it does not."""
    stated = [failed.details.get(name) for name in ("input_tokens", "output_tokens")]
    counts = [count for count in stated if type(count) is int and 0 <= count < MAX_TOKENS]
    return (counts[0], counts[1]) if len(counts) == 2 and any(counts) else None


def agent_error(failed: Failed, mission_uid: str, now: Micros) -> str:
    """`failed` as it is stored: an `AgentError` in JSON."""
    error = AgentError.of(failed, error_id=f"err-{uuid4()}", request_id=mission_uid, timestamp=iso(now))
    return to_json(error.as_json())


def failure_of(end: End, reply: Action | Malformed | None = None) -> Failed:
    """Why a plan has failed; a planner that gives up may name one of our codes itself."""
    code = end.code or _CODES.get(end.outcome, ErrorCode.LIMIT_REACHED)
    details: dict[str, Json] = {"outcome": end.outcome}
    if isinstance(reply, ErrorAction):
        said = reply.model_dump(exclude_none=True, exclude={"ok", "action", "error", "commentary"})
        details |= said
        code = ErrorCode(reply.error_code) if reply.error_code in set(ErrorCode) else code
    if isinstance(reply, Malformed):
        details["errors"] = _problems(reply)
    return Failed(code, end.message or end.outcome, details)


def malformed_error(malformed: Malformed) -> Failed:
    """A reply that cannot be read, with every reason."""
    first = malformed.errors[0].message if malformed.errors else "it is not one LCP action"
    return Failed(
        ErrorCode.INVALID_REPLY, f"the reply is not valid: {first}", {"errors": _problems(malformed)}
    )


def _problems(malformed: Malformed) -> list[Json]:
    return [{"path": error.path, "message": error.message} for error in malformed.errors]
