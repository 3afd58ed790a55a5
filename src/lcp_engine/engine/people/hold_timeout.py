"""Reject held jobs that nobody decided on in time (`hold_timeout`)."""

from __future__ import annotations

from collections.abc import Sequence

from lcp_engine.core.job_states import REJECT
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.engine.failure import agent_error
from lcp_engine.engine.plans.progress import after_rejecting
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import due_holds, hold_seconds

BY = "hold_timeout"


def expire(ledger: Ledger, due: Sequence[tuple[int, int]]) -> None:
    """Reject what is still due of these jobs, each given with its mission; the planner reads the reason."""
    ledger.lock(mission_id for _, mission_id in due)
    still = {job_id for job_id, _ in due_holds(ledger.tx, ledger.tx.now)}
    for job_id in sorted(still.intersection(job_id for job_id, _ in due)):
        _expire(ledger, job_id)


def _expire(ledger: Ledger, job_id: int) -> None:
    job = ledger.job(job_id)
    mission = ledger.mission(job.mission_id)
    reason = because(ReasonCode.HOLD_TIMEOUT, seconds=hold_seconds(mission.spec))
    message = f"job {job.id} ({job.kind}) was rejected: {reason}"
    failed = Failed(ErrorCode.NOT_ALLOWED, message, advice=reason.advice)
    if ledger.move(job, REJECT, reason=reason, error=agent_error(failed, mission.uid, ledger.tx.now)):
        ledger.note(mission, "decided", job.id, {"by": BY, "decision": "reject", "reason": reason.text})
        after_rejecting(ledger, job)
