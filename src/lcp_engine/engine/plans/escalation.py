"""Hand a plan over to a person, in the engine's own name, and take the answer (R9, R13)."""

from __future__ import annotations

from pydantic import JsonValue
from sqlalchemy import bindparam, select

from lcp_engine.core.decide import AskPerson, Claim, End, Outcome, end_by_person
from lcp_engine.core.job_states import State
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.db.transaction import Statement
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.store.schema import events
from lcp_engine.workers.ask_user import KIND

ASKED = "person_asked"
"""The event that tells of such a question what it is about."""
_CLAIM = Statement(
    select(events.c.data)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(events.c.event == bindparam("asked"))
)


def ask_person(ledger: Ledger, mission: MissionRow, plan: PlanRow, turn: JobRow, asked: AskPerson) -> int:
    """Store the question as a held job of the plan; its id. No planner asked for it, so that no cap counts it."""
    options: list[JsonValue] = list(asked.options)
    job_id = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            turn=turn.turn,
            parent_id=turn.id,
            kind=KIND,
            params=to_json({"question": asked.question, "options": options}),
            state=State.HELD,
            reason=because(ReasonCode.QUESTION),
            depth=plan.depth,
        ),
    )
    claim: dict[str, JsonValue] = {}
    if asked.claim is not None:
        unmet: list[JsonValue] = list(asked.failed_checks)
        claim = {"outcome": asked.claim.outcome, "message": asked.claim.message, "unmet": unmet}
    ledger.note(mission, ASKED, job_id, claim)
    return job_id


def answered_end(ledger: Ledger, job: JobRow) -> End | None:
    """What the answer to such a question ends its plan with; None where the planner goes on, and for other jobs."""
    if job.kind != KIND or job.state is not State.SUCCEEDED or job.fingerprint is not None:
        return None
    row = ledger.tx.row(_CLAIM, mission=job.mission_id, job=job.id, asked=ASKED)
    result = ledger.result(job.id)
    data = {} if row is None or row[0] is None else from_json(row[0])
    if not data or result is None:
        return None
    message, unmet = data.get("message"), data.get("unmet")
    claim = Claim(Outcome(str(data["outcome"])), message if isinstance(message, str) else None)
    listed = tuple(map(str, unmet)) if isinstance(unmet, list) else ()
    options = from_json(job.params).get("options")
    answer = from_json(result).get("answer")
    if not isinstance(options, list) or answer not in options:
        return None
    return end_by_person(claim, listed, options.index(answer))
