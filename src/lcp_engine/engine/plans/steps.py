"""Keep steps in their order: one begins when the one before it has succeeded (R12)."""

from __future__ import annotations

from collections.abc import Collection

from lcp_engine.core.job_states import SKIP, State
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queue import live_jobs
from lcp_engine.store.row_types import JobRow, MissionRow

STEP_ORDER = "step_order"
"""Why a step is blocked: the one before it has not succeeded yet."""
_FAULTS = {
    State.FAILED: "has failed",
    State.REJECTED: "was rejected",
    State.SKIPPED: "was skipped",
    State.CANCELLED: "was cancelled",
}


def is_early(ledger: Ledger, job: JobRow) -> bool:
    """Whether the step before has not succeeded yet."""
    return job.after_id is not None and ledger.job(job.after_id).state is not State.SUCCEEDED


def is_due(ledger: Ledger, job: JobRow, live: Collection[int]) -> bool:
    """Whether a step is blocked and nothing keeps it so; `live` are the mission's jobs that are not settled."""
    if job.state is not State.BLOCKED or job.reason != STEP_ORDER or job.after_id in live:
        return False
    return not is_early(ledger, job)


def has_follower(ledger: Ledger, mission: MissionRow, step: JobRow) -> bool:
    """Whether another step still waits behind this one."""
    return any(job.after_id == step.id for job in live_jobs(ledger, mission))


def skip_stranded(ledger: Ledger, mission: MissionRow) -> None:
    """Skip the steps behind one that ended otherwise than well; each names the one before it."""
    live = {job.id: job for job in live_jobs(ledger, mission)}
    for job in live.values():  # the oldest first, so that a whole chain goes
        if job.after_id is None or job.state not in SKIP.sources:
            continue
        before = live.get(job.after_id) or ledger.job(job.after_id)
        if before.state in _FAULTS:
            fault = _FAULTS[before.state]
            ledger.move(job, SKIP, reason=because(ReasonCode.STEP_ENDED, job=before.id, fault=fault))
