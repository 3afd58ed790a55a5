"""The PostgreSQL backend: one database, many machines.

Statements are pipelined: they are sent one after another, and only a result, a row count or the end of a transaction is
waited for, so that a transaction takes few round trips.
"""

from __future__ import annotations

import os
import re
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial, wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict

from lcp_engine.clock import SECOND, Clock, Micros, since_start
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.store.db.transaction import Connection, Cursor, Lend, Params, Row

# UniqueViolation: another transaction inserted the same row at the same moment; the retry finds it.
_OF_OTHERS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.UniqueViolation,
)
ASK_SECONDS = 1.0
"""How long an answer of the server's clock is used."""
_OF_PORTS = frozenset("0123456789,")
_LOST = ("08", "57P")  # classes of SQLSTATE: connection exceptions, the server shuts down or starts

# Writers use indexes, whatever the statistics say of a table that has just grown: a plan that reads or sorts the whole
# queue for its first hundred jobs is wrong from the next claim on.
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

# The server releases the locks of a host that is gone soon after its leases have expired, not after two hours.
_ASK_AFTER_HOST = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"

# A role or a database may have it off, and a commit is acknowledged then before it is on disk.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
)

_ONE_STATE = "SET default_transaction_read_only = on; SET default_transaction_isolation = 'repeatable read'"

# A server that crashed reuses transaction ids that never reached its log.
_NAME = "SELECT pg_current_xact_id() || ' ' || pg_postmaster_start_time()"
_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_END_IT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xid = %(number)s::xid8::xid"
_STARTED = "SELECT pg_postmaster_start_time()::text"
_OWN_ROW = " UNION ALL ".join(
    f"(SELECT 1 FROM {table} WHERE {column} = %(at)s AND xmin = %(number)s::xid8::xid LIMIT 1)"
    for table, column in (("events", "at"), ("changes", "intended_at"), ("changes", "closed_at"))
)
_STATUS = "SELECT pg_xact_status(%(number)s::xid8)"


class Postgres:
    """PostgreSQL through psycopg 3."""

    name = "postgresql"
    away_seconds = 10.0
    """A server that restarts is back by then."""

    def __init__(self, url: str, *, sweeps: bool = False) -> None:
        self._sweeps = sweeps
        self.url = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._shown = _shown(self.url)

    def connect(self) -> Connection:
        connection = connect(self.url)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return Piped(connection)

    def _prepare(self, connection: psycopg.Connection) -> None:
        """Make a connection one that writes. Raises for a server or a pooler over which nothing can be promised."""
        connection.execute(f"{_BY_INDEX}; {_ASK_AFTER_HOST}; {_DURABLE}".encode())
        row = connection.execute("SELECT pg_is_in_recovery(), pg_backend_pid()").fetchone()
        assert row is not None
        if row[0]:
            raise psycopg.errors.ReadOnlySqlTransaction(
                "it is a replica, and only its primary can be written"
            )
        if row[1] != connection.info.backend_pid and self._shares_sessions(row[1]):
            message = f"database {self._shown} is reached through a pooler that shares sessions between transactions"
            advice = "Connect to the server itself, or set the pooler to session pooling."
            raise LcpError(ErrorCode.DATABASE_FAILED, message, advice=advice)
        if self._sweeps:
            connection.execute("SET synchronous_commit = off")
            with suppress(
                psycopg.errors.InsufficientPrivilege
            ):  # then the server checks every reference itself
                connection.execute("SET session_replication_role = replica")

    def _shares_sessions(self, pid: int) -> bool:
        """True if another connection gets the session `pid`, which the first one still holds."""
        with connect(self.url) as other:
            return other.execute("SELECT pg_backend_pid()").fetchone() == (pid,)

    def sweeping(self) -> Postgres:
        return Postgres(self.url, sweeps=True)

    def flush(self, connection: Connection) -> bool:
        """The server needs none."""
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
        assert row is not None, "no transaction was begun"
        return str(row[0])

    def has_committed(self, connection: Connection, transaction: str, at: Micros) -> bool | None:
        asked = connection.cursor()
        asked.execute("BEGIN")
        try:
            return _has_committed(asked, transaction, at)
        finally:
            asked.execute("ROLLBACK")

    def connect_to_read(self) -> Connection:
        connection = connect(self.url)
        try:
            connection.execute(_ONE_STATE.encode())
        except BaseException:
            connection.close()
            raise
        return Piped(connection)

    def clock(self, lend: Lend) -> Clock:
        return ServerClock(partial(_server_time, lend))

    def explain(self, error: Exception) -> LcpError | None:
        if not isinstance(error, psycopg.Error):
            return None
        fact = (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
            return LcpError(ErrorCode.DATABASE_BUSY, f"database {self._shown} stayed locked: {fact}")
        return LcpError(ErrorCode.DATABASE_FAILED, f"database {self._shown} refused: {fact}", advice=GENERAL)

    def may_retry(self, error: Exception) -> bool:
        return isinstance(error, _OF_OTHERS)

    def is_away(self, error: Exception) -> bool:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):  # another server is the primary by now
            return True
        return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08").startswith(_LOST)

    def is_usable(self, connection: Connection) -> bool:
        return not getattr(connection, "closed", False)


# A host that vanishes without a word is noticed after 11 seconds, by whoever waits for it; by default after 15 minutes.
_ASK_AFTER_SERVER = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "11000",
    "connect_timeout": "5",
}


def connect(url: str) -> psycopg.Connection:
    """A connection that notices when its server is gone; what the URL says of that comes first."""
    stated = conninfo_to_dict(url)
    ours = {name: value for name, value in _ASK_AFTER_SERVER.items() if name not in stated}
    made = psycopg.connect(url, autocommit=True, **ours)  # type: ignore[arg-type]  # of libpq, not of psycopg
    _leave_children_out()
    _CONNECTIONS.add(made)
    return made


_CONNECTIONS: WeakSet[psycopg.Connection] = WeakSet()


@cache
def _leave_children_out() -> None:
    os.register_at_fork(after_in_child=_cut_off)


def _cut_off() -> None:
    """Take a forked child's connections away: its server would keep their locks until the child ends, too.

    Nothing is sent, and the numbers stay taken: the parent goes on with the connections.
    """
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in _CONNECTIONS:
        if not connection.closed:
            os.dup2(nowhere, connection.pgconn.socket, inheritable=False)
    os.close(nowhere)
    _CONNECTIONS.clear()


class ServerClock:
    """The server's time, asked again after a second: its clock may be set, and this machine may sleep or be paused.

    While the server does not answer, its last answer is carried on. Raises what the first question raises.
    """

    def __init__(self, ask: Callable[[], Micros]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._set()

    def __call__(self) -> Micros:
        if since_start() - self._asked > ASK_SECONDS * SECOND and self._lock.acquire(blocking=False):
            try:
                with suppress(psycopg.Error, OSError):
                    self._set()
            finally:
                self._lock.release()
        return since_start() + self._offset

    def _set(self) -> None:
        """Half of the round trip is the error."""
        sent = since_start()
        server = self._ask()
        self._asked = since_start()
        self._offset = server - (sent + self._asked) // 2


def _server_time(lend: Lend) -> Micros:
    with lend() as connection:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.execute(_TIME)
        row = cursor.fetchone()
        cursor.execute("ROLLBACK")
    assert row is not None
    return int(row[0])


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
    """Without libpq's own message: it quotes what it cannot parse, which may be the password."""
    message = (
        "a PostgreSQL URL is postgresql://USER:PASSWORD@HOST:PORT/NAME, where everything but letters, digits and -._~ "
        "is percent-encoded in each part (/ is %2F, @ is %40, % is %25); this one is not"
    )
    return LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)


def _has_committed(asked: Cursor, transaction: str, at: Micros) -> bool | None:
    number, _, started = transaction.partition(" ")
    asked.execute(_STARTED)
    is_same_server = asked.fetchone() == (started,)
    if is_same_server:
        # Its server process may not have noticed the lost connection: it would hold its locks, and might yet commit.
        asked.execute(_END_IT, {"number": number})
    asked.execute(_STATUS, {"number": number})
    try:
        row = asked.fetchone()
    except psycopg.errors.InvalidParameterValue:  # "in the future": the server crashed before it knew the id
        return False
    known = {"committed": True, "aborted": False}.get(str(row and row[0]))
    if known and not is_same_server:
        # Another transaction may have the id by now; only this one wrote rows with this time.
        asked.execute(_OWN_ROW, {"at": at, "number": number})
        known = asked.fetchone() is not None
    return known


def _ours(connection: Connection) -> Piped:
    """A connection that `connect` made."""
    assert isinstance(connection, Piped)
    return connection


P = ParamSpec("P")
T = TypeVar("T")

_PARAM = re.compile(r"%\((\w+)\)s|%%")
_OFTEN = 3
"""A statement is sent unprepared so many times, and prepared from then on."""
_KEPT = 500
_LONG = 1000
"""Params of so many bytes are flushed at once, so that the server works while the next statement is prepared."""


_POLL_MS = 1000
"""How often a wait looks whether the connection is still there."""


class Answer:
    """The result of a statement, once it has arrived."""

    __slots__ = ("error", "is_here", "prepares", "result")

    def __init__(self, prepares: tuple[bytes, bytes] | None = None) -> None:
        self.is_here = False
        self.result: pq.abc.PGresult | None = None
        self.error: psycopg.Error | None = None
        self.prepares = prepares

    def take(self, result: pq.abc.PGresult) -> None:
        self.result = result
        if result.status == pq.ExecStatus.PIPELINE_ABORTED:
            self.error = psycopg.errors.PipelineAborted("a statement before it failed")
        elif result.status == pq.ExecStatus.FATAL_ERROR:
            told = psycopg.errors.error_from_result(result)
            # Without a code it is not from the server, but from libpq: the connection is lost.
            self.error = told if told.sqlstate else psycopg.OperationalError(str(told))


def _whole(work: Callable[Concatenate[Piped, P], T]) -> Callable[Concatenate[Piped, P], T]:
    """Close the connection on an interrupt: it is unknown which answer comes next."""

    @wraps(work)
    def do(self: Piped, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(self, *args, **kwargs)
        except Exception:  # an error of a statement leaves the connection in order
            raise
        except BaseException:  # an interrupt
            self.close()
            raise

    return do


class Piped:
    """A connection that sends statements without waiting for each other's results (libpq's pipeline mode).

    The server executes them in order while the next ones are prepared here. An error surfaces at the latest when a
    result, a row count, `settle` or the end of the transaction is waited for; the statements after it are not executed.
    psycopg's own pipeline waits for the socket at each statement, which takes most of its time.
    """

    def __init__(self, driver: psycopg.Connection) -> None:
        self._driver = driver
        self._server = driver.pgconn
        self._server.enter_pipeline_mode()
        self._adapted = Transformer(driver)
        self._poll = select.poll()
        self._coming: deque[Answer] = deque()
        self._used: dict[bytes, int] = {}
        self._kept: dict[bytes, bytes] = {}
        self._names = 0
        self._is_lost = False
        self.begun: PipedCursor | None = None

    @property
    def closed(self) -> bool:
        return self._is_lost or self._driver.closed

    @property
    def descriptor(self) -> int:
        """Descriptor of its socket."""
        return self._server.socket

    def cursor(self) -> PipedCursor:
        return PipedCursor(self)

    @_whole
    def send(self, sql: str, params: Params | None) -> Answer:
        words, names = (sql.encode(), ()) if params is None else _numbered(sql)
        values = [_written(params[name]) for name in names] if params else []
        kept = self._kept.get(words) or self._keep(words)
        if kept is None:
            self._server.send_query_params(words, values)
        else:
            self._server.send_query_prepared(kept, values)
        if sum(len(value) for value in values if value) > _LONG:
            self._server.flush()
        return self._expect(Answer())

    @_whole
    def wait(self, answer: Answer) -> None:
        """Return when it has arrived. Raises its error, or that of a statement before it."""
        if not answer.is_here:
            self._server.send_flush_request()
            self._receive(answer)
        if answer.error is not None:
            raise answer.error

    @_whole
    def settle(self) -> None:
        """Wait for everything that was sent. Raises the first error."""
        if self._coming:
            self._receive(self._sync())

    @_whole
    def end(self, answer: Answer) -> None:
        """Wait for the end of a transaction, but not for its synchronization point: a later error is not its own."""
        self._sync()
        self.wait(answer)

    @_whole
    def abandon(self, sql: str) -> None:
        """Roll back, perhaps to a savepoint, whatever is wrong. Does not wait: the next statement comes after it."""
        if self._coming or self._server.pipeline_status == pq.PipelineStatus.ABORTED:
            with suppress(psycopg.Error):  # after an error nothing is executed until it was read
                self._receive(self._sync())
        self.send(sql, None)
        self._sync()
        self._server.flush()

    def load(self, answer: Answer, first: int, last: int) -> list[Row]:
        """The rows of an answer that has arrived."""
        self._adapted.set_pgresult(answer.result)
        return list(self._adapted.load_rows(first, last, tuple))

    def close(self) -> None:
        self._driver.close()

    def _keep(self, words: bytes) -> bytes | None:
        """Prepare a statement that is used often; its name, once it is prepared."""
        used = self._used[words] = self._used.get(words, 0) + 1
        if used <= _OFTEN or len(self._kept) >= _KEPT:
            if len(self._used) > 2 * _KEPT:
                self._used.clear()
            return None
        self._names += 1
        name = b"lcp_%d" % self._names
        self._server.send_prepare(name, words)
        self._expect(Answer(prepares=(words, name)))
        return name

    def _sync(self) -> Answer:
        """Let the server execute what follows, even after an error."""
        self._server.pipeline_sync()
        return self._expect(Answer())

    def _expect(self, answer: Answer) -> Answer:
        self._coming.append(answer)
        return answer

    def _receive(self, last: Answer) -> None:
        """Read results until `last` has arrived. Raises the first error."""
        wrong: psycopg.Error | None = None
        while not last.is_here:
            answer = self._coming[0]
            result = self._next_result()
            if result is not None and result.status != pq.ExecStatus.PIPELINE_SYNC:
                answer.take(result)
                wrong = wrong or answer.error
                continue
            if result is None and answer.result is None:  # the connection is gone
                self._is_lost = True
                raise wrong or psycopg.OperationalError("the connection was lost")
            self._coming.popleft().is_here = True
            if answer.prepares is not None and answer.error is None:
                self._kept[answer.prepares[0]] = answer.prepares[1]
        if wrong is not None:
            raise wrong

    def _next_result(self) -> pq.abc.PGresult | None:
        """The next result of libpq; None separates the results of two statements."""
        server = self._server
        is_sent = server.flush() == 0
        while server.is_busy():
            self._poll.register(server.socket, select.POLLIN if is_sent else select.POLLIN | select.POLLOUT)
            self._poll.poll(_POLL_MS)
            server.consume_input()
            is_sent = is_sent or server.flush() == 0
        return server.get_result()


class PipedCursor:
    """Statements on a connection; `rowcount` and what is fetched are those of the last one."""

    def __init__(self, connection: Piped) -> None:
        self._connection = connection
        self._last = Answer()
        self._at = 0

    def execute(self, sql: str, params: Params | None = None, /) -> None:
        """Send a statement; a commit is waited for."""
        if sql.startswith("ROLLBACK"):
            self._connection.abandon(sql)
            return
        self._last, self._at = self._connection.send(sql, params), 0
        if sql == "COMMIT":
            self._connection.end(self._last)
            if self._result().command_status != b"COMMIT":
                raise psycopg.errors.InFailedSqlTransaction(
                    f"COMMIT came to {self._result().command_status!r}"
                )

    def executemany(self, sql: str, rows: Sequence[Row], /) -> None:
        """Unused: many rows are the arrays of one statement (`Many`)."""
        raise NotImplementedError(f"{len(rows)} rows one by one: {sql}")

    @property
    def rowcount(self) -> int:
        result = self._result()
        count = result.ntuples if result.status == pq.ExecStatus.TUPLES_OK else result.command_tuples
        return -1 if count is None else count

    @property
    def lastrowid(self) -> None:
        """PostgreSQL has none."""

    def fetchall(self) -> list[Row]:
        count = self._result().ntuples
        first, self._at = self._at, count
        return self._connection.load(self._last, first, count)

    def fetchone(self) -> Row | None:
        if self._at >= self._result().ntuples:
            return None
        self._at += 1
        return self._connection.load(self._last, self._at - 1, self._at)[0]

    def close(self) -> None:
        """Nothing is open."""

    def _result(self) -> pq.abc.PGresult:
        self._connection.wait(self._last)
        assert self._last.result is not None
        return self._last.result


@lru_cache(maxsize=1000)
def _numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement with numbered params instead of named ones, and the names in that order."""
    names: list[str] = []
    return _PARAM.sub(partial(_number, names), sql).encode(), tuple(names)


def _number(names: list[str], found: re.Match[str]) -> str:
    name = found[1]
    if name is None:
        return "%"
    if name not in names:
        names.append(name)
    return f"${names.index(name) + 1}"


def _written(value: object) -> bytes | None:
    """A param as text; its type is in the statement."""
    match value:
        case None:
            return None
        case str():
            if "\0" in value:
                raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
            return value.encode()
        case bool():
            return b"t" if value else b"f"
        case int() | float():
            return repr(value).encode()
        case bytes():
            return b"\\x" + value.hex().encode()
        case list():
            return ("{" + ",".join(map(repr, value)) + "}").encode()
    raise TypeError(f"a param is a {type(value).__name__}; only types that the store writes are accepted")
