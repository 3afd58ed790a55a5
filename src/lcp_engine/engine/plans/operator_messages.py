"""Find out what a turn has to hear of what people said (R14)."""

from __future__ import annotations

from collections.abc import Sequence

from lcp_engine.engine.plans.job_view import seen_job
from lcp_engine.planners.base import Said
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import heard_until, said_to
from lcp_engine.store.row_types import PlanRow, TurnRow
from lcp_engine.store.turns import shown_job


def heard(tx: Tx, turn: TurnRow) -> Sequence[Said]:
    """What was said to a plan since its last turn: each word is heard in one turn, and again in its corrections."""
    after = heard_until(tx, turn.mission_id, turn.plan_id, turn.turn)
    return _said(tx, turn, after, turn.until_seq)


def heard_before(tx: Tx, turn: TurnRow) -> Sequence[Said]:
    """What earlier turns of the plan have heard, oldest first."""
    return _said(tx, turn, 0, heard_until(tx, turn.mission_id, turn.plan_id, turn.turn))


def is_unheard(ledger: Ledger, plan: PlanRow, since_seq: int) -> bool:
    """Whether anything was said to the plan after an event."""
    now = ledger.mission(plan.mission_id).events
    return bool(said_to(ledger.tx, plan.mission_id, plan.id, since_seq, now))


def _said(tx: Tx, turn: TurnRow, after_seq: int, until_seq: int) -> Sequence[Said]:
    found = said_to(tx, turn.mission_id, turn.plan_id, after_seq, until_seq)
    rows = {job_id: shown_job(tx, job_id) for job_id, _ in found if job_id is not None}
    jobs = {job_id: seen_job(row) for job_id, row in rows.items() if row is not None}
    return [Said(str(said["text"]), str(said["by"]), jobs.get(job_id or 0)) for job_id, said in found]
