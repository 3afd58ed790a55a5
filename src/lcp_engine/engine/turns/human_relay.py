"""Hold a turn until a person brings the planner's reply (R13, R21)."""

from __future__ import annotations

from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import BRING, HOLD_AGAIN, State
from lcp_engine.engine.plans.progress import refresh
from lcp_engine.engine.plans.turn_queue import acting_plan
from lcp_engine.engine.turns.question import PLAN_ENDED, drop_turn, keep_reply
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.json_text import storable
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queries.hold_history import has_event
from lcp_engine.store.row_types import JobRow, TurnRow
from lcp_engine.store.turns import StoredReply, keep_prompt, question_of

RELAYED = "a person has to bring the planner's reply"
MOST_CHARACTERS = 16 * 1024 * 1024


def hold_turn(ledger: Ledger, lease: JobRow, turn: TurnRow, prompt: str) -> None:
    """Store the prompt, and hold the turn, which keeps its place among the turns of its mission.

    A turn that nobody needs any more is dropped; where the lease was lost, nothing is done.
    """
    mission = ledger.mission(lease.mission_id)
    if not ledger.is_leased(lease):
        return
    if mission.has_ended or acting_plan(ledger, lease).outcome is not None:
        drop_turn(ledger, lease, mission, PLAN_ENDED)
        return
    keep_prompt(ledger.tx, turn.mission_id, turn.number, prompt)
    ledger.attempted(lease, HOLD_AGAIN.event)
    ledger.move(lease, HOLD_AGAIN, reason=RELAYED, is_leased=True)
    refresh(ledger, mission)


def is_relayed(ledger: Ledger, job: JobRow) -> bool:
    """Whether the job is a turn that waits for a person to bring its reply."""
    return job.state is State.HELD and ledger.mission(job.mission_id).asking == job.id


def bring_reply(ledger: Ledger, job: JobRow, text: str, *, by: str) -> bool:
    """Store the reply that a person brings, and let the turn go on. False where it was brought before.

    Raises `WRONG_STATE` where another one was, or the turn was decided otherwise, `INVALID_ARGUMENT` for a reply that
    is blank or too long.
    """
    _check(job, text)
    turn = question_of(ledger.tx, job.id)
    assert turn is not None
    if not is_relayed(ledger, job):
        if turn.reply == storable(text):
            return False
        fact = f"it is {job.state}" if turn.reply is None else "another reply was brought before"
        raise LcpError(ErrorCode.WRONG_STATE, f"job {job.id} has to be held to be answered; {fact}")
    seconds = max(0, ledger.tx.now - turn.asked_at) / SECOND
    keep_reply(ledger, turn, StoredReply(text, turn.prompt, None, None, seconds))
    mission = ledger.mission(job.mission_id)
    ledger.move(job, BRING)
    ledger.note(mission, "decided", job.id, {"by": by, "decision": "reply", "question": turn.number})
    refresh(ledger, mission)
    return True


def was_relayed(ledger: Ledger, job: JobRow) -> bool:
    """Whether a person has to bring, or has brought, the reply to this turn."""
    return is_relayed(ledger, job) or has_event(ledger.tx, job, BRING.event)


def refuse_relayed(ledger: Ledger, job: JobRow) -> None:
    """Raises `INVALID_ARGUMENT` for a turn that waits for its reply: a yes is none."""
    if is_relayed(ledger, job):
        message = (
            f"job {job.id} has to be answered, not approved: `lcp answer {job.id} --file REPLY`; it is a turn"
        )
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def _check(job: JobRow, text: str) -> None:
    if not text.strip():
        message = f"the reply to job {job.id} has to say something; it is blank"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    if len(text) > MOST_CHARACTERS:
        message = f"the reply to job {job.id} has at most {MOST_CHARACTERS} characters; this has {len(text)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
