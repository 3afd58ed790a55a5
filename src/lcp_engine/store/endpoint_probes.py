"""Keep what endpoints honour of the ways to ask a model for one action."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select, text

from lcp_engine.clock import Micros
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.schema import probes

_FIND = Statement(
    select(probes.c.found)
    .where(probes.c.endpoint == bindparam("endpoint"), probes.c.model == bindparam("model"))
    .where(probes.c.at >= bindparam("since"))
)
_KEEP = Statement(
    text(
        "INSERT INTO probes (endpoint, model, found, at) VALUES (:endpoint, :model, :found, :at) "
        "ON CONFLICT (endpoint, model) DO UPDATE SET found = excluded.found, at = excluded.at"
    )
)
_FORGET = Statement(
    delete(probes).where(probes.c.endpoint == bindparam("endpoint"), probes.c.model == bindparam("model"))
)


def find_probe(tx: Tx, endpoint: str, model: str, *, since: Micros) -> str | None:
    """What was found of a model at an endpoint, unless that was before `since`."""
    row = tx.row(_FIND, endpoint=endpoint, model=model, since=since)
    return None if row is None else str(row[0])


def keep_probe(tx: Tx, endpoint: str, model: str, found: str) -> None:
    """Know this from now on, instead of what was known."""
    tx.run(_KEEP, endpoint=endpoint, model=model, found=found, at=tx.now)


def forget_probe(tx: Tx, endpoint: str, model: str) -> None:
    """Know nothing any more."""
    tx.run(_FORGET, endpoint=endpoint, model=model)
