"""Find the jobs of a mission that are not settled."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import bindparam, select, text

from lcp_engine.store.db.transaction import Statement
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.row_types import JobRow, MissionRow, job_row
from lcp_engine.store.schema import LIVE, jobs

_LIVE_JOBS = Statement(
    select(*(jobs.c[field.name] for field in fields(JobRow)))
    .where(text(LIVE), jobs.c.mission_id == bindparam("mission"))
    .order_by(jobs.c.id)
    .with_for_update()
)


def live_jobs(ledger: Ledger, mission: MissionRow) -> list[JobRow]:
    """The mission's jobs that are not settled, oldest first."""
    return [job_row(row) for row in ledger.tx.rows(_LIVE_JOBS, mission=mission.id)]
