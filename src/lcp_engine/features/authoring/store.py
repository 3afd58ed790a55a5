"""Find the missions that have not ended in a root."""

from __future__ import annotations

from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx

_OPEN = Sql(
    "SELECT id FROM missions WHERE root = :root AND status IN ('running', 'waiting') ORDER BY id", root=str
)


def open_missions(tx: Tx, root: str) -> list[int]:
    """The ids of the missions over exactly this root that run or wait."""
    return [row[0] for row in tx.rows(_OPEN, root=root)]
