"""Store a large result once, however many jobs have it.

It is not compressed, so that the views show it to anyone who reads with SQL.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, bindparam, func, select, text, update

from lcp_engine.store.changes import sha256
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import jobs, results

LARGE = 16 * 1024
"""Characters; a larger result has a row of its own."""

RESULT: ColumnElement[str] = func.coalesce(
    jobs.c.result,
    select(results.c.text).where(results.c.sha256 == jobs.c.result_sha256).scalar_subquery(),
).label("result")
"""A job's result, wherever it is stored; to be selected from `jobs`."""

# The lock keeps a prune from deleting a result that a job is about to refer to.
_THERE = Statement(
    select(results.c.size)
    .where(results.c.sha256 == bindparam("hash"))
    .with_for_update(read=True, key_share=True)
)
_NEW = Statement(
    text(
        "INSERT INTO results (sha256, size, text) VALUES (:hash, :size, :told) ON CONFLICT (sha256) DO NOTHING"
    )
)
_REFER = Statement(
    update(jobs).where(jobs.c.id == bindparam("job")).values(result_sha256=bindparam("new_result_sha256"))
)


def in_row(result: str | None) -> str | None:
    """Text that is stored in the job's own row: None if the result is large."""
    return None if is_large(result) else result


def is_large(result: str | None) -> bool:
    return result is not None and len(result) > LARGE


def keep(tx: Tx, found: Iterable[tuple[int, str]]) -> None:
    """Store the large results of jobs, by their ids.

    In the order of the hashes, so that transactions that store the same results do not wait for each other in a circle.
    """
    for sha, job_id, result in sorted((sha256(result.encode()), job_id, result) for job_id, result in found):
        # A row that another transaction made at the same moment is not locked by the attempt to make it.
        while tx.row(_THERE, hash=sha) is None:
            if tx.run(_NEW, hash=sha, size=len(result.encode()), told=result) == 1:
                break
        tx.run(_REFER, job=job_id, new_result_sha256=sha)
