"""Read the first and the last rows of a long list, without what is large in them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue
from sqlalchemy import ColumnElement, Select, case, func, select

from lcp_engine.core.job_states import State
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.queries.mission_facts import JobFact
from lcp_engine.store.schema import jobs

LARGEST = 16 * 1024
"""Params with more characters are read one job at a time, and only what they are about is kept."""
ABOUT = ("rel_path", "path", "patterns", "question", "options", "user_prompt")

_IS_LARGE = func.length(jobs.c.params) > LARGEST
JOB: tuple[ColumnElement[object], ...] = (
    jobs.c.id,
    jobs.c.kind,
    jobs.c.name,
    jobs.c.state,
    jobs.c.reason,
    jobs.c.error,
    case((_IS_LARGE, None), else_=jobs.c.params).label("params"),
)
"""What `read_jobs` reads."""


def excerpt(
    tx: Tx, clause: Select[*tuple[object, ...]], key: ColumnElement[int], total: int, most: int
) -> list[Row]:
    """Of `total` rows in the order of `key` at most `most`: the first ones and, where some are left out, the last."""
    if total <= most:
        return tx.query(clause.order_by(key).limit(most))
    last = tx.query(clause.order_by(key.desc()).limit(most // 2))
    return [*tx.query(clause.order_by(key).limit(most - most // 2)), *reversed(last)]


def read_jobs(tx: Tx, rows: Sequence[Row]) -> list[JobFact]:
    """Rows of `JOB`. Of large params only those in `ABOUT` are read."""
    return [_job(tx, row) for row in rows]


def _job(tx: Tx, row: Row) -> JobFact:
    number, kind, name, state, reason, error, params = row
    return JobFact(
        id=number,
        kind=kind,
        name=name,
        state=State(state),
        reason=reason,
        error=None if error is None else json.loads(error),
        params=_about(tx, number) if params is None else json.loads(params),
        is_cut=params is None,
    )


def _about(tx: Tx, job_id: int) -> dict[str, JsonValue]:
    text = tx.query(select(jobs.c.params).where(jobs.c.id == job_id))[0][0]
    params: JsonObject = json.loads(text)
    return {name: params[name] for name in ABOUT if name in params}
