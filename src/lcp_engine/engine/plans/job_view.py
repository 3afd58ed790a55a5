"""Show a planner the jobs of its plan."""

from __future__ import annotations

from lcp_engine.planners.base import SeenJob
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.transaction import Row


def seen_job(row: Row) -> SeenJob:
    """A row of `settled_jobs`, `waiting_jobs` or `shown_job` as the planner sees it."""
    job_id, name, kind, params, state, reason, result, error, turn = row
    return SeenJob(
        job_id=job_id,
        name=name,
        kind=kind,
        params=from_json(params),
        state=state,
        reason=reason,
        result=None if result is None else from_json(result),
        error=None if error is None else from_json(error),
        turn=turn,
    )
