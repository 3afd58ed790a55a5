"""Compile statements: written once in SQLAlchemy Core, fixed SQL for each database.

Many rows are one statement each on SQLite, and one statement for all on PostgreSQL, where each statement costs more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from operator import itemgetter
from typing import Any, TypeAlias  # noqa: TID251 -- a driver's values have no types until a row is a record

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

from lcp_engine.store.db.transaction import Params, Row

_BY_POSITION = SQLiteDialect_pysqlite(paramstyle="qmark")


class Statement:
    """A statement in SQLAlchemy Core, compiled once for each database to fixed SQL."""

    def __init__(self, clause: ClauseElement) -> None:
        self._clause = clause
        self._sql: dict[str, str] = {}

    def sql(self, database: str) -> str:
        known = self._sql.get(database)
        if known is None:
            compiled = self._clause.compile(dialect=_dialect(database))
            constants = [name for name, bind in getattr(compiled, "binds", {}).items() if not bind.required]
            assert not constants, f"constants must be written into the SQL: {constants}"
            known = str(compiled)
            self._sql[database] = known
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


def compile_once(clause: ClauseElement, database: str) -> tuple[str, Params]:
    """The SQL and the params of a statement that is used once."""
    compiled = clause.compile(dialect=_dialect(database), compile_kwargs={"render_postcompile": True})
    return str(compiled), compiled.params


@cache
def _dialect(database: str) -> Dialect:
    if database == "sqlite":
        return SQLiteDialect_pysqlite(paramstyle="named")
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    return PGDialect_psycopg()  # type: ignore[no-untyped-call]  # SQLAlchemy left this one out


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
