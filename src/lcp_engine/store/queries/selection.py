"""Select rows under conditions, in SQL that both databases understand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.store.db.sql import Param, Sql
from lcp_engine.store.db.transaction import Row, Tx

_READ: dict[str, Callable[[str], JsonValue]] = {
    **dict.fromkeys(
        ("jobs", "tokens", "limits", "deliverables", "metrics", "error", "params", "result", "attempts", "data",
         "errors", "unfulfilled", "warnings", "issues", "recommendations", "completions",
         "cost", "waits_for", "assessment"),
        json.loads,
    ),
    "auto_dispatch": bool,
}  # fmt: skip


class Condition(NamedTuple):
    """A condition on rows, in the SQL of both databases; its params are written `:name`."""

    sql: str
    params: Mapping[str, Param] = MappingProxyType({})


def equal(name: str, value: Param) -> Condition:
    return Condition(f"{name} = :{name}", {name: value})


def among(name: str, values: Sequence[str]) -> Condition:
    """The column has one of the values."""
    params: dict[str, Param] = {f"{name}_{n}": value for n, value in enumerate(values)}
    return Condition(f"{name} IN ({', '.join(f':{param}' for param in params) or 'NULL'})", params)


def with_ids(ids: Iterable[int], column: str = "id") -> Condition:
    """The column has one of the ids; without any, no row fits, which `IN ()` says in SQLite alone."""
    return Condition(f"{column} IN ({', '.join(map(str, sorted(ids))) or 'NULL'})")


class Columns:
    """Columns that are read of a view or table, by their names, those of `large` as None above so many characters."""

    def __init__(self, view: str, names: Sequence[str], *, large: Mapping[str, int] | None = None) -> None:
        large = large or {}
        self._view = view
        cut = (f"CASE WHEN length({name}) <= {most} THEN {name} END" for name, most in large.items())
        self._sql = f"SELECT {', '.join((*names, *cut))} FROM {view}"
        self._names = (*names, *large)
        self._read = [(at, _READ[name]) for at, name in enumerate(self._names) if name in _READ]

    def read(
        self,
        tx: Tx,
        *where: Condition,
        order: str = "id",
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """The rows for which every condition holds, as objects."""
        rows = self.rows(tx, *where, order=order, newest_first=newest_first, limit=limit)
        return [self._object(row) for row in rows]

    def rows(
        self,
        tx: Tx,
        *where: Condition,
        order: str = "id",
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[Row]:
        """The rows for which every condition holds, as they are stored."""
        then = f"ORDER BY {order}{' DESC' if newest_first else ''}"
        if limit is None:
            return find(tx, self._sql, *where, then=then)
        return find(tx, self._sql, *where, then=f"{then} LIMIT :most", most=limit)

    def count(self, tx: Tx, *where: Condition) -> int:
        """Count the rows for which every condition holds."""
        return int(find(tx, f"SELECT count(*) FROM {self._view}", *where)[0][0])

    def _object(self, row: Row) -> JsonObject:
        values = list(row)
        for at, read in self._read:
            if values[at] is not None:
                values[at] = read(values[at])
        return dict(zip(self._names, values, strict=True))


def find(tx: Tx, select: str, *where: Condition, then: str = "", **params: Param) -> list[Row]:
    """The rows of `select` for which every condition holds; `then` follows the conditions, `params` are its own."""
    for condition in where:
        params.update(condition.params)
    limits = f" WHERE {' AND '.join(condition.sql for condition in where)}" if where else ""
    types = tuple((name, type(value)) for name, value in params.items())
    return tx.rows(_statement(f"{select}{limits} {then}".rstrip(), types), **params)


@lru_cache(maxsize=500)
def _statement(sql: str, types: tuple[tuple[str, type[Param]], ...]) -> Sql:
    return Sql(sql, **dict(types))
