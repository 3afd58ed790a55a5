"""Find which changes of commands are still needed: those that a job waits with, or is about to."""

from __future__ import annotations

from sqlalchemy import text

from lcp_engine.core.kinds import APPLY
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx

_WAITING = Statement(
    text(
        f"SELECT params FROM jobs WHERE kind = '{APPLY}' AND state IN ('held', 'queued', 'running', 'blocked')"
    )
)
_RUNNING = Statement(text("SELECT attempt FROM jobs WHERE id = :job AND state = 'running'"))


def is_needed(tx: Tx, name: str) -> bool:
    """True if a job waits to apply the changes that are kept under this name, or the command itself runs."""
    job, _, attempt = name.partition("-")
    row = tx.row(_RUNNING, job=int(job))
    if row is not None and str(row[0]) == attempt:
        return True
    return any(from_json(str(params)).get("held") == name for (params,) in tx.rows(_WAITING))
