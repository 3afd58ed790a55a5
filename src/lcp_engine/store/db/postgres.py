"""Speak to PostgreSQL: one database, many machines."""

from __future__ import annotations

import time
from contextlib import suppress

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from lcp_engine.clock import Clock, Micros, steady_clock
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.postgres_pipeline import Piped
from lcp_engine.store.db.transaction import Connection, Cursor

# UniqueViolation: somebody made the same at the same moment; the next try finds it.
_OF_OTHERS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.UniqueViolation,
)
_OF_PORTS = frozenset("0123456789,")
_LOST = ("08", "57P")  # classes of SQLSTATE: connection exceptions, the server shuts down or starts

# What is written is found by an index, whatever the server believes of a table that has just grown: a plan that reads
# or sorts a whole queue for its first hundred jobs is wrong from the next claim on.
_BY_INDEX = "; ".join(
    f"SET {setting}"
    for setting in (
        "plan_cache_mode = force_generic_plan",
        "enable_seqscan = off",
        "enable_bitmapscan = off",
        "enable_hashjoin = off",
        "enable_mergejoin = off",
        "enable_sort = off",
        "jit = off",
    )
)

# The server lets go of the locks of a host that is gone soon after its leases have run out, not after two hours.
_ASK_AFTER_HOST = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"

_ONE_STATE = "SET default_transaction_read_only = on; SET default_transaction_isolation = 'repeatable read'"

# A server that died forgets ids that never reached its log, and gives them to others.
_NAME = "SELECT pg_current_xact_id() || ' ' || pg_postmaster_start_time()"
_END_IT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xid = %(number)s::xid8::xid"
_STARTED = "SELECT pg_postmaster_start_time()::text"
_OWN_EVENT = "SELECT 1 FROM events WHERE at = %(at)s AND xmin = %(number)s::xid8::xid LIMIT 1"
_STATUS = "SELECT pg_xact_status(%(number)s::xid8)"


class Postgres:
    """PostgreSQL through psycopg 3."""

    name = "postgresql"

    def __init__(self, url: str, *, sweeps: bool = False) -> None:
        self._sweeps = sweeps
        self.url = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self.dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]  # SQLAlchemy left this one out
        self._shown = _shown(self.url)

    def connect(self) -> Connection:
        connection = psycopg.connect(self.url, autocommit=True)
        connection.execute(f"{_BY_INDEX}; {_ASK_AFTER_HOST}".encode())
        if self._sweeps:
            connection.execute("SET synchronous_commit = off")
            with suppress(
                psycopg.errors.InsufficientPrivilege
            ):  # then the server checks every reference itself
                connection.execute("SET session_replication_role = replica")
        return Piped(connection)

    def sweeping(self) -> Postgres:
        return Postgres(self.url, sweeps=True)

    def flush(self, connection: Connection) -> bool:
        """The server does so by itself."""
        return False

    def begin(self, connection: Connection) -> None:
        ours = _ours(connection)
        ours.cursor().execute("BEGIN")
        ours.begun = ours.cursor()
        ours.begun.execute(_NAME)

    def settle(self, connection: Connection) -> None:
        _ours(connection).settle()

    def transaction(self, connection: Connection) -> str:
        begun = _ours(connection).begun
        row = None if begun is None else begun.fetchone()
        assert row is not None, "a transaction has to be begun first"
        return str(row[0])

    def has_committed(self, connection: Connection, transaction: str, at: Micros) -> bool | None:
        asked = connection.cursor()
        asked.execute("BEGIN")
        try:
            return _has_committed(asked, transaction, at)
        finally:
            asked.execute("ROLLBACK")

    def connect_to_read(self) -> Connection:
        connection = psycopg.connect(self.url, autocommit=True)
        connection.execute(_ONE_STATE.encode())
        return Piped(connection)

    def clock(self, connection: Connection) -> Clock:
        """The server's time, carried on by this machine's monotonic clock (half of the round trip is the error)."""
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        sent = time.monotonic_ns()
        cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        row = cursor.fetchone()
        travelled = (time.monotonic_ns() - sent) // 2000
        cursor.execute("ROLLBACK")
        assert row is not None
        return steady_clock(int(row[0]) + travelled)

    def explain(self, error: Exception) -> LcpError | None:
        if not isinstance(error, psycopg.Error):
            return None
        fact = (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
            return LcpError(ErrorCode.DATABASE_BUSY, f"database {self._shown} stayed locked: {fact}")
        return LcpError(ErrorCode.DATABASE_FAILED, f"database {self._shown} refused: {fact}")

    def may_retry(self, error: Exception) -> bool:
        return isinstance(error, _OF_OTHERS) or _is_lost(error)

    def is_usable(self, connection: Connection) -> bool:
        return not getattr(connection, "closed", False)


def _shown(url: str) -> str:
    """Host and name of the database at `url`. Raises `INVALID_ARGUMENT` where libpq misreads it."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise _unreadable() from None
    host, port, name = (str(parts.get(part, "")) for part in ("host", "port", "dbname"))
    if "@" in host[1:] or "@" in name or not set(port) <= _OF_PORTS:
        raise _unreadable()
    return f"{host or 'local'}/{name}"


def _unreadable() -> LcpError:
    """Not in libpq's words: they quote what could not be read, which may be the password."""
    message = (
        "a PostgreSQL URL is postgresql://USER:PASSWORD@HOST:PORT/NAME, where what is no letter, digit or one of -._~ "
        "is percent-encoded in each part (/ is %2F, @ is %40, % is %25); this one is not"
    )
    return LcpError(ErrorCode.INVALID_ARGUMENT, message)


def _has_committed(asked: Cursor, transaction: str, at: Micros) -> bool | None:
    number, _, started = transaction.partition(" ")
    asked.execute(_STARTED)
    is_same_server = asked.fetchone() == (started,)
    if is_same_server:
        # Its process there may not know yet that nobody listens: it would keep its locks, and its commit open.
        asked.execute(_END_IT, {"number": number})
    asked.execute(_STATUS, {"number": number})
    try:
        row = asked.fetchone()
    except psycopg.errors.InvalidParameterValue:  # "in the future": the server died and never heard of it
        return False
    known = {"committed": True, "aborted": False}.get(str(row and row[0]))
    if known and not is_same_server:
        # Since then the id may be somebody else's; the events of the transaction are its own.
        asked.execute(_OWN_EVENT, {"at": at, "number": number})
        known = True if asked.fetchone() else None
    return known


def _is_lost(error: Exception) -> bool:
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08").startswith(_LOST)


def _ours(connection: Connection) -> Piped:
    """A connection that `connect` made."""
    assert isinstance(connection, Piped)
    return connection
