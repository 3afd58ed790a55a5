"""Run statements in one transaction. Needs no SQLAlchemy, which is slow to load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import (  # a driver's values have no types until a row is a record
    TYPE_CHECKING,
    Any,  # noqa: TID251
    Protocol,
    TypeAlias,
)

from lcp_engine.clock import Clock, Micros
from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from sqlalchemy.sql import ClauseElement

    from lcp_engine.store.db.statements import Many, NewRow

# Values of a driver have no types until a row becomes a record.
Params: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Sequence[Any]


class Cursor(Protocol):
    """The part of a DB-API cursor that is used here."""

    @property
    def rowcount(self) -> int: ...
    @property
    def lastrowid(self) -> int | None: ...
    def execute(self, sql: str, params: Params = ..., /) -> object: ...
    def executemany(self, sql: str, rows: Sequence[Row], /) -> object: ...
    def fetchall(self) -> list[Row]: ...
    def fetchone(self) -> Row | None: ...
    def close(self) -> None: ...


class Connection(Protocol):
    """The part of a DB-API connection that is used here."""

    def cursor(self) -> Cursor: ...
    def close(self) -> None: ...


Lend: TypeAlias = Callable[[], AbstractContextManager[Connection]]


class Reading(Protocol):
    """The part of a backend that reads need."""

    def connect_to_read(self) -> Connection: ...
    def is_usable(self, connection: Connection) -> bool: ...


class Backend(Reading, Protocol):
    """Differences between SQLite and PostgreSQL."""

    name: str
    away_seconds: float
    """How long callers wait for it while it is away, unless they choose otherwise."""

    def connect(self) -> Connection: ...
    def begin(self, connection: Connection) -> None:
        """Begin a transaction that writes."""

    def settle(self, connection: Connection) -> None:
        """Wait until every statement so far was executed. Raises the first error."""

    def transaction(self, connection: Connection) -> str | None:
        """The current transaction's id for `has_committed`; None if a commit is never in doubt."""

    def has_committed(self, connection: Connection, transaction: str, at: Micros) -> bool | None:
        """True if the transaction of a connection that was lost took effect; None while that is open.

        `at` is the time that its events and changes carry. One that wrote neither counts as lost if the server has
        crashed since, and may take effect twice.
        """

    def clock(self, lend: Lend) -> Clock:
        """The database's time; `lend` gives a connection that reads."""

    def explain(self, error: Exception) -> LcpError | None:
        """The error as an `LcpError`; None if it is not the driver's."""

    def sweeping(self) -> Backend:
        """The same database, for deleting rows together with all that refer to them.

        References are not checked if the database permits that, and commits become durable with the next commit of
        another connection or with `flush`.
        """

    def flush(self, connection: Connection) -> bool:
        """Move commits from the log into the database, as far as no writer has to wait for it.

        Whether so many are left that it should be repeated while no writer runs.
        """

    def may_retry(self, error: Exception) -> bool:
        """True if the database rolled the transaction back because of others (a deadlock, a key that another took)."""

    def is_away(self, error: Exception) -> bool:
        """True if the database cannot be used for now: its server is gone, its disk is full or read-only."""


class Executable(Protocol):
    """A statement that each database has in its own SQL."""

    def sql(self, database: str) -> str:
        """The SQL for the database of that name (`Backend.name`)."""


class Tx:
    """One transaction: its statements, the time it began, whether it made a job ready, what is left for its end.

    `now_waiting`: the missions that it made wait for a person, each with the number of the event that says so.

    Statements without a result (`send`, `many`, `plain`) do not wait for PostgreSQL: their errors surface at a later
    statement, at the latest at the commit.
    """

    def __init__(self, connection: Connection, database: str, now: Micros) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.database = database
        self.is_sqlite = database == "sqlite"
        self.now = now
        self.made_ready = False
        self.now_waiting: dict[int, int] = {}
        self.at_end: list[Callable[[], None]] = []
        self.ledger: object = None

    def run(self, statement: Executable, **params: object) -> int:
        """Execute; the number of rows that were changed."""
        self._cursor.execute(statement.sql(self.database), params)
        return self._cursor.rowcount

    def start(self, statement: Executable, **params: object) -> Callable[[], int]:
        """Like `run`; the returned function waits for the number. On PostgreSQL it is sent with the next statement."""
        if self.is_sqlite:
            changed = self.run(statement, **params)
            return lambda: changed
        cursor = self._connection.cursor()
        cursor.execute(statement.sql(self.database), params)
        return lambda: cursor.rowcount

    def send(self, statement: Executable, **params: object) -> None:
        """Execute."""
        self._cursor.execute(statement.sql(self.database), params)

    def insert(self, new: NewRow, params: Params) -> int:
        """Insert a row; its id."""
        if self.is_sqlite:
            self._cursor.execute(new.plain.sql(self.database), params)
            made = self._cursor.lastrowid
        else:
            self._cursor.execute(new.returning.sql(self.database), params)
            row = self._cursor.fetchone()
            made = None if row is None else row[0]
        assert made is not None
        return int(made)

    def many(self, statement: Many, rows: Sequence[Row]) -> None:
        """Execute for each of `rows`."""
        if rows:
            self._execute_many(self._cursor, statement, rows)

    def change_all(self, statement: Many, rows: Sequence[Row]) -> None:
        """Like `many`, but the transaction fails at its end unless each changed one row."""
        if not rows:
            return
        cursor = self._connection.cursor()
        self._execute_many(cursor, statement, rows)

        def check() -> None:
            changed = cursor.rowcount
            cursor.close()
            assert changed == len(rows), f"{changed} of {len(rows)} rows that were there were changed"

        self.at_end.append(check)

    def _execute_many(self, cursor: Cursor, statement: Many, rows: Sequence[Row]) -> None:
        if self.is_sqlite:
            sql, arrange = statement.by_position
            cursor.executemany(sql, rows if arrange is None else list(map(arrange, rows)))
        elif len(rows) == 1:
            cursor.execute(statement.sql(self.database), dict(zip(statement.names, rows[0], strict=True)))
        else:
            cursor.execute(statement.at_once.sql(self.database), statement.gather(rows))

    def rows(self, statement: Executable, **params: object) -> list[Row]:
        self._cursor.execute(statement.sql(self.database), params)
        return self._cursor.fetchall()

    def ask(self, statement: Executable, **params: object) -> Callable[[], list[Row]]:
        """Like `rows`; the returned function waits for them. On PostgreSQL it is sent with the next statement."""
        if self.is_sqlite:
            found = self.rows(statement, **params)
            return lambda: found
        cursor = self._connection.cursor()
        cursor.execute(statement.sql(self.database), params)
        return cursor.fetchall

    def row(self, statement: Executable, **params: object) -> Row | None:
        self._cursor.execute(statement.sql(self.database), params)
        return self._cursor.fetchone()

    def plain(self, sql: str) -> None:
        """Execute SQL that needs no params and no dialect."""
        self._cursor.execute(sql)

    def run_plain(self, sql: str) -> int:
        """Like `plain`; the number of rows that were changed."""
        self._cursor.execute(sql)
        return self._cursor.rowcount

    def query_plain(self, sql: str) -> list[Row]:
        """The rows of SQL that needs no params and no dialect."""
        self._cursor.execute(sql)
        return self._cursor.fetchall()

    def query(self, clause: ClauseElement) -> list[Row]:
        """The rows of a statement that is compiled for this one use."""
        from lcp_engine.store.db.statements import compile_once

        self._cursor.execute(*compile_once(clause, self.database))
        return self._cursor.fetchall()

    def end(self) -> None:
        """Run what was left for the end (`at_end`)."""
        for work in self.at_end:
            work()
        self.at_end.clear()

    def close(self) -> None:
        """Release the connection: while a cursor refers to it, it is not closed."""
        self.ledger = None
        self.at_end.clear()
        self._cursor.close()
