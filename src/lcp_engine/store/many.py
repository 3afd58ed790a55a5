"""Write many rows: with a statement each on SQLite, with one for all where a statement costs more (PostgreSQL)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlalchemy import ARRAY, Column, ColumnElement, Table, bindparam, column, func, insert, select
from sqlalchemy.sql import ClauseElement, TableValuedAlias

from lcp_engine.store.transaction import Statement

Given: TypeAlias = Callable[[str], ColumnElement[object]]
"""What stands for a param of that name: a value for one row, a column of `given` for all."""


def insert_rows(table: Table, names: Sequence[str]) -> Statement:
    """Inserts rows with these columns."""
    given = _given({name: table.c[name] for name in names})
    return Statement(
        insert(table).values({name: bindparam(name) for name in names}),
        at_once=insert(table).from_select(names, select(*(given.c[name] for name in names))),
    )


def update_rows(params: Mapping[str, Column[object]], make: Callable[[Given], ClauseElement]) -> Statement:
    """Updates rows, each with params of its own; `params` names for each the column whose type it has."""
    given = _given(params)
    return Statement(make(bindparam), at_once=make(lambda name: given.c[name]))


def _given(params: Mapping[str, Column[object]]) -> TableValuedAlias:
    """A table of the params, each of them the array of a column."""
    arrays = (bindparam(name, type_=ARRAY(like.type)) for name, like in params.items())
    columns: list[ColumnElement[object]] = [column(name, like.type) for name, like in params.items()]
    return func.unnest(*arrays).table_valued(*columns).render_derived(name="given")
