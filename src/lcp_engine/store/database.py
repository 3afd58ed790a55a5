"""Run transactions: one writer path in a process, whose callers share commits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql import ClauseElement

from lcp_engine.clock import Clock, Micros
from lcp_engine.errors import LcpError

T = TypeVar("T")

# What a driver takes and gives: typed again where a row becomes a record.
Params: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Sequence[Any]


class Cursor(Protocol):
    """The part of a DB-API cursor that is used here."""

    rowcount: int

    def execute(self, sql: str, params: Params = ..., /) -> object: ...
    def executemany(self, sql: str, rows: Sequence[Params], /) -> object: ...
    def fetchall(self) -> list[Row]: ...
    def fetchone(self) -> Row | None: ...


class Connection(Protocol):
    """The part of a DB-API connection that is used here."""

    def cursor(self) -> Cursor: ...
    def close(self) -> None: ...


class Backend(Protocol):
    """What differs between SQLite and PostgreSQL."""

    name: str
    dialect: Dialect
    begin: str

    def connect(self) -> Connection: ...
    def connect_to_read(self) -> Connection: ...
    def clock(self, connection: Connection) -> Clock: ...
    def explain(self, error: Exception) -> LcpError | None:
        """The error in the engine's words, or None where it is not one of the driver's."""

    def may_retry(self, error: Exception) -> bool:
        """Whether the transaction was undone by the database only because of others (deadlock, lost connection)."""

    def is_usable(self, connection: Connection) -> bool: ...


class Statement:
    """A statement in SQLAlchemy Core, compiled once for each dialect to fixed SQL."""

    def __init__(self, clause: ClauseElement) -> None:
        self._clause = clause
        self._sql: dict[str, str] = {}

    def sql(self, dialect: Dialect) -> str:
        known = self._sql.get(dialect.name)
        if known is None:
            compiled = self._clause.compile(dialect=dialect)
            constants = [name for name, bind in getattr(compiled, "binds", {}).items() if not bind.required]
            assert not constants, f"constants have to stand in the SQL itself: {constants}"
            known = str(compiled)
            self._sql[dialect.name] = known
        return known


class Tx:
    """One transaction: statements, the time it began, whether it made a job ready, what is left for its end."""

    def __init__(self, connection: Connection, dialect: Dialect, now: Micros) -> None:
        self._cursor = connection.cursor()
        self._dialect = dialect
        self.now = now
        self.wakes = False
        self.at_end: list[Callable[[], None]] = []
        self.books: object = None

    @property
    def is_sqlite(self) -> bool:
        return self._dialect.name == "sqlite"

    def run(self, statement: Statement, **params: object) -> int:
        """Execute; the number of rows that were changed."""
        self._cursor.execute(statement.sql(self._dialect), params)
        return self._cursor.rowcount

    def many(self, statement: Statement, rows: Sequence[Params]) -> None:
        if rows:
            self._cursor.executemany(statement.sql(self._dialect), rows)

    def rows(self, statement: Statement, **params: object) -> list[Row]:
        self._cursor.execute(statement.sql(self._dialect), params)
        return self._cursor.fetchall()

    def row(self, statement: Statement, **params: object) -> Row | None:
        self._cursor.execute(statement.sql(self._dialect), params)
        return self._cursor.fetchone()

    def plain(self, sql: str) -> None:
        """Execute SQL that needs no params and no dialect."""
        self._cursor.execute(sql)

    def query_plain(self, sql: str) -> list[Row]:
        """The rows of SQL that needs no params and no dialect."""
        self._cursor.execute(sql)
        return self._cursor.fetchall()

    def query(self, clause: ClauseElement) -> list[Row]:
        """The rows of a statement that is put together for this one use."""
        compiled = clause.compile(dialect=self._dialect, compile_kwargs={"render_postcompile": True})
        self._cursor.execute(str(compiled), compiled.params)
        return self._cursor.fetchall()

    def end(self) -> None:
        """Do what was left for the end (`at_end`)."""
        for work in self.at_end:
            work()
        self.at_end.clear()


class Unit(Generic[T]):
    """Work of one caller that waits for its commit."""

    def __init__(self, work: Callable[[Tx], T]) -> None:
        self.work = work
        self.woken = threading.Event()
        self.is_done = False
        self._value: list[T] = []
        self._error: BaseException | None = None

    def perform(self, tx: Tx) -> None:
        self._value = [self.work(tx)]

    def fail(self, error: BaseException) -> None:
        self._error = error
        self.is_done = True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value[0]


class Database:
    """One database. `write` and `read` may be called from any thread.

    A unit given to `write` may run more than once (when another one that shares its transaction raised), but takes
    effect once; it must have no effects besides its statements. `on_wake` is called after each commit that made a job
    ready.
    """

    RETRIES = 5

    def __init__(self, backend: Backend, clock: Clock | None = None) -> None:
        self.backend = backend
        self.on_wake: Callable[[], None] = lambda: None
        self.in_transaction_wake: Callable[[Tx], None] = lambda tx: None
        self._mutex = threading.Lock()
        self._waiting: deque[Unit[Any]] = deque()
        self._is_led = False
        self._writer: Connection | None = None
        self._readers = threading.local()
        self._opened: list[Connection] = []
        self._given_clock = clock
        self._clock: Clock | None = clock

    def now(self) -> Micros:
        """The database's time, in microseconds since 1970."""
        if self._clock is None:
            self._clock = self.backend.clock(self._reader())
        return self._clock()

    def write(self, work: Callable[[Tx], T]) -> T:
        """Do `work` in a transaction that others may share; returns after its commit. Raises what `work` raises."""
        unit = Unit(work)
        with self._mutex:
            self._waiting.append(unit)
            leads, self._is_led = not self._is_led, True
        if not leads:
            unit.woken.wait()
        if not unit.is_done:
            self._lead()
        return unit.result()

    def read(self, work: Callable[[Tx], T]) -> T:
        """Do `work` on one consistent state without changing it."""
        with self.explained():
            connection = self._reader()
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            try:
                return work(Tx(connection, self.backend.dialect, self.now()))
            finally:
                _roll_back(cursor)

    def join(self, connection: Connection) -> Tx:
        """A transaction that somebody else began and will commit."""
        return Tx(connection, self.backend.dialect, self.now())

    def close(self) -> None:
        with self._mutex:
            opened, self._opened, self._writer = self._opened, [], None
        self._readers = threading.local()
        for connection in opened:
            with suppress(Exception):  # closing is the last thing; what was acknowledged is committed
                connection.close()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of the driver leave in the engine's words."""
        try:
            yield
        except LcpError:
            raise
        except Exception as error:
            explained = self.backend.explain(error)
            if explained is None:
                raise
            raise explained from error

    def _lead(self) -> None:
        """Commit everything that waits, then hand over to whoever came meanwhile."""
        with self._mutex:
            batch = list(self._waiting)
            self._waiting.clear()
        try:
            self._commit(batch)
        finally:
            with self._mutex:
                successor = self._waiting[0] if self._waiting else None
                self._is_led = successor is not None
            for unit in batch:
                unit.woken.set()
            if successor is not None:
                successor.woken.set()

    def _commit(self, batch: list[Unit[Any]]) -> None:
        retries = 0
        while batch:
            try:
                culprit = self._attempt(batch)
            except Exception as error:
                self._forget_broken_writer()
                if self.backend.may_retry(error) and retries < self.RETRIES:
                    retries += 1
                    continue
                _fail_all(batch, self.backend.explain(error) or error)
                return
            except BaseException as error:
                _fail_all(batch, error)
                raise
            if culprit is None:
                return
            batch = [unit for unit in batch if unit is not culprit]

    def _attempt(self, batch: list[Unit[Any]]) -> Unit[Any] | None:
        """One transaction over the batch. The unit whose own fault undid it, or None after the commit."""
        connection = self._writable()
        cursor = connection.cursor()
        cursor.execute(self.backend.begin)
        tx = Tx(connection, self.backend.dialect, self.now())
        for unit in batch:
            try:
                unit.perform(tx)
            except BaseException as error:
                _roll_back(cursor)
                if isinstance(error, Exception):
                    if self.backend.may_retry(error):
                        raise
                    unit.fail(self.backend.explain(error) or error)
                else:
                    unit.fail(error)
                return unit
        try:
            tx.end()
            if tx.wakes:
                self.in_transaction_wake(tx)
            cursor.execute("COMMIT")
        except Exception:
            _roll_back(cursor)
            raise
        for unit in batch:
            unit.is_done = True
        if tx.wakes:
            self.on_wake()
        return None

    def _writable(self) -> Connection:
        if self._writer is None:
            self._writer = self._remember(self.backend.connect())
        return self._writer

    def _reader(self) -> Connection:
        connection: Connection | None = getattr(self._readers, "connection", None)
        if connection is None or not self.backend.is_usable(connection):
            connection = self._remember(self.backend.connect_to_read())
            self._readers.connection = connection
        return connection

    def _remember(self, connection: Connection) -> Connection:
        self._opened.append(connection)
        return connection

    def _forget_broken_writer(self) -> None:
        if self._writer is not None and not self.backend.is_usable(self._writer):
            self._writer = None


def _roll_back(cursor: Cursor) -> None:
    with suppress(Exception):  # the error that led here is the one to tell
        cursor.execute("ROLLBACK")


def _fail_all(batch: Iterable[Unit[Any]], error: BaseException) -> None:
    for unit in batch:
        unit.fail(error)
