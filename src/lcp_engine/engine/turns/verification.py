"""Have the planner verify what it says is done, in a turn of its own (R9)."""

from __future__ import annotations

from typing import assert_never

from pydantic import JsonValue

from lcp_engine.core.decisions import Claim, Outcome, Verify
from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    Malformed,
    Manner,
    MissionComplete,
    Problem,
)
from lcp_engine.core.protocol.dialects import Dialect
from lcp_engine.engine.plans.turn_queue import VERIFIES, queue_question
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.row_types import JobRow, PlanRow


def queue_verification(ledger: Ledger, plan: PlanRow, verify: Verify, dialect: Dialect) -> int:
    """Queue the turn that verifies; the id of its job. It holds the claim that its reply decides about."""
    claim: dict[str, JsonValue] = {"outcome": verify.claim.outcome, "message": verify.claim.message}
    params: dict[str, JsonValue] = {"user_prompt": _prompt(verify, dialect), VERIFIES: claim}
    return queue_question(ledger, plan, params, depth=plan.depth)


def claim_of(turn: JobRow) -> Claim | None:
    """What the planner would end the plan with, where this turn verifies it."""
    claim = from_json(turn.params).get(VERIFIES)
    if not isinstance(claim, dict):
        return None
    message = claim.get("message")
    return Claim(Outcome(str(claim["outcome"])), message if isinstance(message, str) else None)


def as_verdict(reply: Action | Malformed, dialect: Dialect) -> Action | Malformed:
    """The reply of a turn that verifies; in a dialect that has words for a verdict, no other ones pass."""
    if dialect == "lcp" or not isinstance(reply, AnalysisResult | MissionComplete):
        return reply
    if reply.manner is Manner.VERIFICATION:
        return reply
    message = "this turn verifies: answer with a response of the type verification"
    return Malformed(errors=(Problem(path="response_type", message=message),), recovered=reply.recovered)


def _prompt(verify: Verify, dialect: Dialect) -> str:
    asked = "\n".join(f"- {question}" for question in verify.questions)
    said = (
        f"You say that the goal is reached. Verify it, question by question, and ask for no jobs:\n{asked}\n"
    )
    match dialect:
        case "lcp":
            return (
                f"{said}Where every answer is yes, answer with analysis_result or mission_complete. "
                "Otherwise answer with error, and say what is missing."
            )
        case "universal":
            return (
                f"{said}Answer with a response of the type verification: a check for each question, and PASS where "
                "all of them passed."
            )
        case _:
            assert_never(dialect)
