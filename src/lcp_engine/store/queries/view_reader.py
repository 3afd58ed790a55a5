"""Read rows of the views as JSON objects; the SQL is put together once for each shape of a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from pydantic import JsonValue
from sqlalchemy import BigInteger, Text, TextClause, bindparam, text

from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.db.transaction import Row, Statement, Tx

Param: TypeAlias = int | str
_READ: dict[str, Callable[[str], JsonValue]] = {
    **dict.fromkeys(
        ("jobs", "tokens", "limits", "deliverables", "metrics", "error", "params", "result", "attempts", "data",
         "errors"),
        from_json,
    ),
    "auto_dispatch": bool,
}  # fmt: skip


class Condition(NamedTuple):
    """What holds for rows, in the SQL of both databases; its params stand there as `:name`."""

    sql: str
    params: Mapping[str, Param] = MappingProxyType({})

    @property
    def clause(self) -> TextClause:
        return text(self.sql).bindparams(*(bindparam(name, value) for name, value in self.params.items()))


def equal(name: str, value: Param) -> Condition:
    return Condition(f"{name} = :{name}", {name: value})


def among(name: str, values: Sequence[str]) -> Condition:
    """The column has one of the values."""
    params: dict[str, Param] = {f"{name}_{n}": value for n, value in enumerate(values)}
    return Condition(f"{name} IN ({', '.join(f':{param}' for param in params) or 'NULL'})", params)


class Columns:
    """What is read of a view: columns by their names, those of `large` as None above so many characters."""

    def __init__(self, view: str, names: Sequence[str], *, large: Mapping[str, int] | None = None) -> None:
        large = large or {}
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
        sql = self._sql
        params = {name: value for condition in where for name, value in condition.params.items()}
        if where:
            sql += f" WHERE {' AND '.join(condition.sql for condition in where)}"
        sql += f" ORDER BY {order}{' DESC' if newest_first else ''}"
        if limit is not None:
            sql, params = f"{sql} LIMIT :most", {**params, "most": limit}
        types = tuple((name, type(value)) for name, value in params.items())
        return tx.rows(_statement(sql, types), **params)

    def _object(self, row: Row) -> JsonObject:
        values = list(row)
        for at, read in self._read:
            if values[at] is not None:
                values[at] = read(values[at])
        return dict(zip(self._names, values, strict=True))


@lru_cache(maxsize=500)
def _statement(sql: str, types: tuple[tuple[str, type[Param]], ...]) -> Statement:
    binds = (bindparam(name, type_=BigInteger() if kind is int else Text()) for name, kind in types)
    return Statement(text(sql).bindparams(*binds))
