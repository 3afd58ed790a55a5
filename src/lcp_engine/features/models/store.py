"""Store what planners have found out about endpoints."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Table, Text, bindparam, delete, literal_column, select, text

from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import LcpError
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import metadata

probes = Table(
    "probes",
    metadata,
    Column("endpoint", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("found", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""What an endpoint honours of the ways to ask for one action, so that no process finds it out again."""

PROBE_LIFETIME: Micros = 7 * 24 * 3600 * SECOND
"""How long a probe is used: servers are upgraded, and may honour more than they did."""

_FIND = Statement(
    select(probes.c.found)
    .where(probes.c.endpoint == bindparam("endpoint"), probes.c.model == bindparam("model"))
    .where(probes.c.at >= bindparam("since"))
)
_ALL = Statement(
    select(probes.c.endpoint, probes.c.model, probes.c.found)
    .where(probes.c.at >= bindparam("since"))
    .order_by(probes.c.at.desc(), probes.c.endpoint, probes.c.model)
    .limit(bindparam("most"))
    .offset(literal_column("0"))
)
_STORE = Statement(
    text(
        "INSERT INTO probes (endpoint, model, found, at) VALUES (:endpoint, :model, :found, :at) "
        "ON CONFLICT (endpoint, model) DO UPDATE SET found = excluded.found, at = excluded.at"
    )
)
_FORGET = Statement(
    delete(probes).where(probes.c.endpoint == bindparam("endpoint"), probes.c.model == bindparam("model"))
)


@dataclass(frozen=True)
class StoredProbeCache:
    """The `ProbeCache` of `planners.environment` in the database.

    Probes only spare requests: while the database is busy or away, nothing is found and nothing is stored.
    """

    database: Database

    def find(self, endpoint: str, model: str, /) -> str | None:
        """Findings about a model in the last `PROBE_LIFETIME`."""
        since = self.database.now() - PROBE_LIFETIME

        def read(tx: Tx) -> str | None:
            row = tx.row(_FIND, endpoint=endpoint, model=model, since=since)
            return None if row is None else str(row[0])

        with suppress(LcpError):
            return self.database.read(read)
        return None

    def store(self, endpoint: str, model: str, found: str, /) -> None:
        """Store `found` instead of what was stored."""

        def write(tx: Tx) -> None:
            tx.run(_STORE, endpoint=endpoint, model=model, found=found, at=tx.now)

        with suppress(LcpError):
            self.database.write(write)

    def forget(self, endpoint: str, model: str, /) -> None:
        def write(tx: Tx) -> None:
            tx.run(_FORGET, endpoint=endpoint, model=model)

        with suppress(LcpError):
            self.database.write(write)


def newest_probes(tx: Tx, most: int) -> list[tuple[str, str, str]]:
    """Endpoint, model and what was found out about it in the last `PROBE_LIFETIME`, the newest first."""
    return [(row[0], row[1], row[2]) for row in tx.rows(_ALL, since=tx.now - PROBE_LIFETIME, most=most)]
