"""Run statements in one transaction.

A statement is written once in SQLAlchemy Core and compiled once for each dialect. Many rows are one statement each on
SQLite, and one statement for all on PostgreSQL, where each statement costs more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol, TypeAlias  # noqa: TID251 -- a driver's values have no types until a row is a record

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Insert,
    Integer,
    Table,
    Text,
    bindparam,
    column,
    func,
    insert,
    select,
)
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql import ClauseElement, TableValuedAlias

from lcp_engine.clock import Clock, Micros
from lcp_engine.errors import LcpError

# Values of a driver have no types until a row becomes a record.
Params: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Sequence[Any]

_BY_POSITION = SQLiteDialect_pysqlite(paramstyle="qmark")


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


class Reading(Protocol):
    """The part of a backend that reads need."""

    def connect_to_read(self) -> Connection: ...
    def is_usable(self, connection: Connection) -> bool: ...


class Backend(Reading, Protocol):
    """What differs between SQLite and PostgreSQL."""

    name: str

    @property
    def dialect(self) -> Dialect: ...

    def connect(self) -> Connection: ...
    def begin(self, connection: Connection) -> None:
        """Begin a transaction that writes."""

    def settle(self, connection: Connection) -> None:
        """Wait until every statement so far was executed. Raises the first error."""

    def transaction(self, connection: Connection) -> str | None:
        """The current transaction's id for `has_committed`; None if a commit is never in doubt."""

    def has_committed(self, connection: Connection, transaction: str, at: Micros) -> bool | None:
        """Whether the transaction of a connection that was lost took effect; None while that is open.

        `at` is the time that its events carry.
        """

    def clock(self, connection: Connection) -> Clock: ...
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
        """Whether the database rolled the transaction back through no fault of its own (deadlock, lost connection)."""


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
            assert not constants, f"constants must be written into the SQL: {constants}"
            known = str(compiled)
            self._sql[dialect.name] = known
        return known


class Many(Statement):
    """Executes a clause for each of many rows, which are tuples of values for `names`.

    `at_once` is one statement for all rows (PostgreSQL); `gather` makes its params of them.
    """

    def __init__(
        self,
        names: Sequence[str],
        clause: ClauseElement,
        at_once: ClauseElement,
        gather: Callable[[Sequence[Row]], Params],
    ) -> None:
        super().__init__(clause)
        self.names = tuple(names)
        self.at_once = Statement(at_once)
        self.gather = gather

    def row(self, values: Params) -> tuple[object, ...]:
        return tuple(values[name] for name in self.names)

    @cached_property
    def by_position(self) -> tuple[str, Callable[[Row], Row] | None]:
        """SQLite's SQL with positional params, and what arranges a row in their order, if that differs.

        Binding values by name takes longer than many statements.
        """
        compiled = self._clause.compile(dialect=_BY_POSITION)
        order = getattr(compiled, "positiontup", None) or ()
        assert set(order) == set(self.names), f"{set(order) ^ set(self.names)}: given, or asked for, alone"
        arrange = itemgetter(*map(self.names.index, order))
        return str(compiled), None if tuple(order) == self.names else arrange


class NewRow:
    """An INSERT that gives the id of its row; on SQLite without RETURNING, which doubles its time."""

    def __init__(self, clause: Insert, id_column: ColumnElement[int]) -> None:
        self.plain = Statement(clause)
        self.returning = Statement(clause.returning(id_column))


class Tx:
    """One transaction: its statements, the time it began, whether it made a job ready, what is left for its end.

    Statements without a result (`send`, `many`, `plain`) do not wait for PostgreSQL: their errors surface at a later
    statement, at the latest at the commit.
    """

    def __init__(self, connection: Connection, dialect: Dialect, now: Micros) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._dialect = dialect
        self.is_sqlite = dialect.name == "sqlite"
        self.now = now
        self.made_ready = False
        self.now_waiting: set[int] = set()
        self.at_end: list[Callable[[], None]] = []
        self.ledger: object = None

    @property
    def dialect_name(self) -> str:
        return self._dialect.name

    def run(self, statement: Statement, **params: object) -> int:
        """Execute; the number of rows that were changed."""
        self._cursor.execute(statement.sql(self._dialect), params)
        return self._cursor.rowcount

    def start(self, statement: Statement, **params: object) -> Callable[[], int]:
        """Like `run`; the returned function waits for the number. On PostgreSQL it is sent with the next statement."""
        if self.is_sqlite:
            changed = self.run(statement, **params)
            return lambda: changed
        cursor = self._connection.cursor()
        cursor.execute(statement.sql(self._dialect), params)
        return lambda: cursor.rowcount

    def send(self, statement: Statement, **params: object) -> None:
        """Execute."""
        self._cursor.execute(statement.sql(self._dialect), params)

    def insert(self, new: NewRow, params: Params) -> int:
        """Insert a row; its id."""
        if self.is_sqlite:
            self._cursor.execute(new.plain.sql(self._dialect), params)
            made = self._cursor.lastrowid
        else:
            self._cursor.execute(new.returning.sql(self._dialect), params)
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
            cursor.execute(statement.sql(self._dialect), dict(zip(statement.names, rows[0], strict=True)))
        else:
            cursor.execute(statement.at_once.sql(self._dialect), statement.gather(rows))

    def rows(self, statement: Statement, **params: object) -> list[Row]:
        self._cursor.execute(statement.sql(self._dialect), params)
        return self._cursor.fetchall()

    def ask(self, statement: Statement, **params: object) -> Callable[[], list[Row]]:
        """Like `rows`; the returned function waits for them. On PostgreSQL it is sent with the next statement."""
        if self.is_sqlite:
            found = self.rows(statement, **params)
            return lambda: found
        cursor = self._connection.cursor()
        cursor.execute(statement.sql(self._dialect), params)
        return cursor.fetchall

    def row(self, statement: Statement, **params: object) -> Row | None:
        self._cursor.execute(statement.sql(self._dialect), params)
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
        compiled = clause.compile(dialect=self._dialect, compile_kwargs={"render_postcompile": True})
        self._cursor.execute(str(compiled), compiled.params)
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


Given: TypeAlias = Callable[[str], ColumnElement[object]]
"""The expression for a param of that name: a value for one row, a column of `given` for all."""


def insert_rows(table: Table, names: Sequence[str]) -> Many:
    """Inserts rows with these columns."""
    columns = {name: table.c[name] for name in names}
    given = _given(columns)
    return Many(
        names,
        insert(table).values({name: bindparam(name) for name in names}),
        insert(table).from_select(names, select(*(given.c[name] for name in names))),
        _to_arrays(columns),
    )


def update_rows(params: Mapping[str, Column[object]], make: Callable[[Given], ClauseElement]) -> Many:
    """Updates rows, each with its own params; `params` names the column whose type each has."""
    given = _given(params)
    return Many([*params], make(bindparam), make(lambda name: given.c[name]), _to_arrays(params))


def _given(params: Mapping[str, Column[object]]) -> TableValuedAlias:
    """A table of the params, each of them the array of a column."""
    arrays = (bindparam(name, type_=ARRAY(like.type)) for name, like in params.items())
    columns: list[ColumnElement[object]] = [column(name, like.type) for name, like in params.items()]
    return func.unnest(*arrays).table_valued(*columns).render_derived(name="given")


def _to_arrays(params: Mapping[str, Column[object]]) -> Callable[[Sequence[Row]], Params]:
    """Makes arrays of rows, in PostgreSQL's notation: psycopg takes ten times as long for a list."""
    writers = {name: _writer(like) for name, like in params.items()}

    def gather(rows: Sequence[Row]) -> Params:
        values = zip(*rows, strict=True)
        return {name: write(column) for (name, write), column in zip(writers.items(), values, strict=True)}

    return gather


def _writer(like: Column[object]) -> Callable[[Sequence[Any]], str]:
    match like.type:
        case Integer():
            return _numbers
        case Text():
            return _texts
    raise TypeError(f"column {like} is of type {like.type}; integers or text are expected")


def _numbers(values: Sequence[int | None]) -> str:
    return "{" + str([*values])[1:-1].replace("None", "NULL") + "}"


def _texts(values: Sequence[str | None]) -> str:
    """Each text in quotes. All at once: they are joined by NUL, which PostgreSQL does not store in texts."""
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        return "{" + ",".join(["NULL" if value is None else _texts([value])[1:-1] for value in values]) + "}"
    joined = "\0".join(present).replace("\\", "\\\\").replace('"', '\\"')
    if joined.count("\0") == len(values) - 1:  # else one of them has it, and the driver refuses it
        joined = joined.replace("\0", '","')
    return '{"' + joined + '"}'
