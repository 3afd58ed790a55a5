"""Let a step that ended without success go on, and the steps behind it wait for it again (R12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from sqlalchemy import bindparam, select, text

from lcp_engine.core.job_states import RETRY_BLOCKED, RETRY_HELD, State
from lcp_engine.engine.plans.progress import refresh
from lcp_engine.engine.plans.steps import STEP_ORDER, is_early
from lcp_engine.engine.plans.turn_queue import TURN_ORDER, begun_plan, queue_turn
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.transaction import Statement
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import unanswered_hold
from lcp_engine.store.row_types import JobRow, job_row
from lcp_engine.store.schema import jobs

_SKIPPED_STEPS = Statement(
    select(*(jobs.c[field.name] for field in fields(JobRow)))
    .where(text("plan_id IS NOT NULL"), jobs.c.plan_id == bindparam("plan"), jobs.c.settled_seq.is_not(None))
    .where(text("after_id IS NOT NULL"), text("state = 'skipped'"))
    .order_by(jobs.c.id)
)


def retry_step(ledger: Ledger, step: JobRow, *, by: str) -> None:
    """Ask the step's plan again, or for the first time. Raises `WRONG_STATE` where no turn could follow."""
    mission = ledger.mission(step.mission_id)
    assert step.plan_id is not None
    if mission.has_ended or ledger.plan(step.plan_id).outcome is not None:
        message = f"job {step.id} is a step of a plan that has to go on; it has ended"
        raise LcpError(ErrorCode.WRONG_STATE, f"{message}: `lcp resume {mission.id}` asks the planner again")
    if is_early(ledger, step):
        message = f"job {step.id} follows job {step.after_id}, which has to succeed first"
        raise LcpError(ErrorCode.WRONG_STATE, f"{message}; it is {ledger.job(step.after_id or 0).state}")
    ended_as = step.state
    plan = begun_plan(ledger, step)
    if plan is None:
        _wait_again(ledger, step, TURN_ORDER)
    else:
        ledger.move(step, RETRY_BLOCKED)
        plan.reopen()
        queue_turn(ledger, plan, notices=[f"a person retried this step; before, it was {ended_as}"])
    again = {step.id}
    for behind in _skipped_steps(ledger, step.plan_id):
        if behind.after_id in again:
            again.add(behind.id)
            _wait_again(ledger, behind, STEP_ORDER)
    ledger.note(mission, "decided", step.id, {"by": by, "decision": "retry"})
    refresh(ledger, mission)


def _wait_again(ledger: Ledger, step: JobRow, reason: str) -> None:
    """Block a step that was not asked yet, or hold it where nobody said yes to it."""
    hold = None if step.state is State.FAILED else unanswered_hold(ledger.tx, step)
    if hold is None:
        ledger.move(step, RETRY_BLOCKED, reason=reason)
    else:
        ledger.move(step, RETRY_HELD, reason=hold)


def _skipped_steps(ledger: Ledger, plan_id: int) -> Sequence[JobRow]:
    """The oldest first, so that a whole chain is found."""
    return [job_row(row) for row in ledger.tx.rows(_SKIPPED_STEPS, plan=plan_id)]
