"""SQL that both databases understand, so that reading history needs no SQLAlchemy."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TypeAlias

Param: TypeAlias = int | str
_PARAM = re.compile(r"(?<![:\w]):(\w+)")
_TYPES = {int: "BIGINT", str: "VARCHAR"}


class Sql:
    """A statement whose params are written `:name`; `types` are the types of their values."""

    def __init__(self, text: str, **types: type[Param]) -> None:
        self._text = text
        self._types = types

    def sql(self, database: str) -> str:
        """The SQL for SQLite, or that for PostgreSQL, which needs the types of params."""
        return self._text if database == "sqlite" else self._typed

    @cached_property
    def _typed(self) -> str:
        return _PARAM.sub(self._param, self._text.replace("%", "%%"))

    def _param(self, found: re.Match[str]) -> str:
        return f"%({found[1]})s::{_TYPES[self._types[found[1]]]}"
