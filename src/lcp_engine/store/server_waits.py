"""Store until when the servers of planners ask all questions to wait (R34)."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select, text

from lcp_engine.clock import Micros
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import server_waits

_WAITS_UNTIL = Statement(select(server_waits.c.until).where(server_waits.c.name == bindparam("name")))
_LONGER = "ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE server_waits.until < excluded.until"
# The second need not wait for the first, whose transaction may wait for this one: both were asked the same.
_WAIT = {
    "sqlite": Statement(text(f"INSERT INTO server_waits (name, until) VALUES (:name, :until) {_LONGER}")),
    "postgresql": Statement(
        text(
            "INSERT INTO server_waits (name, until) SELECT CAST(:name AS text), CAST(:until AS bigint) "
            f"WHERE pg_try_advisory_xact_lock(hashtextextended(:name, 34)) {_LONGER}"
        )
    ),
}
_END_WAIT = {
    "sqlite": Statement(delete(server_waits).where(server_waits.c.name == bindparam("name"))),
    "postgresql": Statement(
        text(
            "DELETE FROM server_waits WHERE name = CAST(:name AS text) "
            "AND pg_try_advisory_xact_lock(hashtextextended(CAST(:name AS text), 34))"
        )
    ),
}


def waits_until(tx: Tx, server: str) -> Micros:
    """Until when a server asked to wait; 0 if it never did."""
    row = tx.row(_WAITS_UNTIL, name=server)
    return 0 if row is None else int(row[0])


def keep_wait(tx: Tx, server: str, until: Micros) -> None:
    """Let all questions to a server wait, on all runners of the database."""
    tx.run(_WAIT[tx.database], name=server, until=until)


def end_wait(tx: Tx, server: str) -> None:
    """Let no further question to a server wait: it has answered before it said it would."""
    tx.run(_END_WAIT[tx.database], name=server)
