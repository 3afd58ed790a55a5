"""Name the dialects that a planner may answer in, each with the reader of its replies. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, get_args

from pydantic import BaseModel

from lcp_engine.core.protocol.actions import Action, Malformed
from lcp_engine.core.protocol.read_reply import read_reply
from lcp_engine.errors import ErrorCode, LcpError

Dialect: TypeAlias = Literal["lcp", "universal"]
Reader: TypeAlias = Callable[[str, Mapping[str, type[BaseModel]]], Action | Malformed]

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)


def reader_of(dialect: str) -> Reader:
    """The reader of a dialect that somebody named, total as each is: no text raises.

    Raises `INVALID_ARGUMENT` for a dialect that there is not.
    """
    if dialect == "lcp":
        return read_reply
    if dialect == "universal":
        from lcp_engine.core.protocol.universal import read_universal  # many models, slow to load

        return read_universal
    names = " or ".join(map(repr, DIALECTS))
    raise LcpError(ErrorCode.INVALID_ARGUMENT, f"a dialect is {names}; there is no {dialect!r}")
