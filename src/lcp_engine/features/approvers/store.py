"""Store which signed links were used (the table `used_links`): a link decides once."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, ForeignKey, Table, Text, bindparam, select, text

from lcp_engine.clock import Micros
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import metadata

used_links = Table(
    "used_links",
    metadata,
    Column("name", Text, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("decision", Text, nullable=False),
    Column("person", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Signed links that have decided a job, each by a hash of it, from which nothing can make it again."""

_USE = Statement(
    text(
        "INSERT INTO used_links (name, job_id, decision, person, at) VALUES (:name, :job, :decision, :who, :now)"
    )
)
_FIND = Statement(
    select(used_links.c.decision, used_links.c.person, used_links.c.at).where(
        used_links.c.name == bindparam("name")
    )
)


@dataclass(frozen=True)
class Use:
    """Decision of a link, whose it was, and when."""

    decision: str
    person: str
    at: Micros


def find_use(tx: Tx, name: str) -> Use | None:
    """Decision of the link; None if it was not used."""
    row = tx.row(_FIND, name=name)
    return None if row is None else Use(*row)


def keep_use(tx: Tx, name: str, job_id: int, decision: str, person: str) -> None:
    """Store that the link decided. The transaction fails if it has decided before."""
    tx.run(_USE, name=name, job=job_id, decision=decision, who=person, now=tx.now)
