"""Write many rows: with a statement each on SQLite, with one for all where a statement costs more (PostgreSQL)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias  # noqa: TID251 -- a row's values have no types until they are in an array

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Integer,
    Table,
    Text,
    bindparam,
    column,
    func,
    insert,
    select,
)
from sqlalchemy.sql import ClauseElement, TableValuedAlias

from lcp_engine.store.db.transaction import Many, Params, Row

Given: TypeAlias = Callable[[str], ColumnElement[object]]
"""What stands for a param of that name: a value for one row, a column of `given` for all."""


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
    """Updates rows, each with params of its own; `params` names for each the column whose type it has."""
    given = _given(params)
    return Many([*params], make(bindparam), make(lambda name: given.c[name]), _to_arrays(params))


def _given(params: Mapping[str, Column[object]]) -> TableValuedAlias:
    """A table of the params, each of them the array of a column."""
    arrays = (bindparam(name, type_=ARRAY(like.type)) for name, like in params.items())
    columns: list[ColumnElement[object]] = [column(name, like.type) for name, like in params.items()]
    return func.unnest(*arrays).table_valued(*columns).render_derived(name="given")


def _to_arrays(params: Mapping[str, Column[object]]) -> Callable[[Sequence[Row]], Params]:
    """What makes arrays of rows, in PostgreSQL's own notation: psycopg takes ten times as long for a list."""
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
    raise TypeError(f"column {like} has to be of whole numbers or text; it is {like.type}")


def _numbers(values: Sequence[int | None]) -> str:
    return "{" + str([*values])[1:-1].replace("None", "NULL") + "}"


def _texts(values: Sequence[str | None]) -> str:
    """Each text in quotes. All at once: NUL, which no text of PostgreSQL has, stands between them meanwhile."""
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        return "{" + ",".join(["NULL" if value is None else _texts([value])[1:-1] for value in values]) + "}"
    joined = "\0".join(present).replace("\\", "\\\\").replace('"', '\\"')
    if joined.count("\0") == len(values) - 1:  # else one of them has it, and the driver refuses it
        joined = joined.replace("\0", '","')
    return '{"' + joined + '"}'
