"""Read the first and the last rows of a long list, without what is large in them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lcp_engine.clock import iso
from lcp_engine.core.job_states import State
from lcp_engine.core.kinds import TURN
from lcp_engine.features.reports.facts import JobFact
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.queries.pages import read_about
from lcp_engine.store.queries.selection import Columns, Condition

LARGEST = 16 * 1024
"""Params with more characters are read one job at a time, and only what they are about is kept."""

JOB = Columns(
    "jobs", ("id", "kind", "name", "state", "reason", "error", "ended_at"), large={"params": LARGEST}
)
"""What `read_jobs` reads."""
IS_NO_TURN = Condition(f"kind <> '{TURN}'")


def excerpt(
    tx: Tx, columns: Columns, where: Sequence[Condition], total: int, most: int, *, order: str = "id"
) -> list[Row]:
    """Read at most `most` of `total` rows in `order`: the first ones and, where some are left out, the last."""
    if total <= most:
        return columns.rows(tx, *where, order=order, limit=most)
    last = columns.rows(tx, *where, order=order, newest_first=True, limit=most // 2)
    return [*columns.rows(tx, *where, order=order, limit=most - most // 2), *reversed(last)]


def read_jobs(tx: Tx, rows: Sequence[Row]) -> list[JobFact]:
    """Rows of `JOB`. Of large params only those that say what the job is about are read."""
    return [_job(tx, row) for row in rows]


def _job(tx: Tx, row: Row) -> JobFact:
    number, kind, name, state, reason, error, ended_at, params = row
    return JobFact(
        id=number,
        kind=kind,
        name=name,
        state=State(state),
        reason=reason,
        error=None if error is None else json.loads(error),
        params=read_about(tx, number) if params is None else json.loads(params),
        is_cut=params is None,
        ended_at=None if ended_at is None else iso(ended_at),
    )
