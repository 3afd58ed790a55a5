"""Name the dialects that a planner may answer in, each with the reader of its replies. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, get_args

from pydantic import BaseModel

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.protocol.actions import Action, Malformed
from lcp_engine.protocol.reading import read_reply
from lcp_engine.protocol.universal import read_universal

Dialect: TypeAlias = Literal["lcp", "universal"]
Reader: TypeAlias = Callable[[str, Mapping[str, type[BaseModel]]], Action | Malformed]

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
READERS: Mapping[Dialect, Reader] = {"lcp": read_reply, "universal": read_universal}
"""Every reader is total: no text raises."""


def reader_of(dialect: str) -> Reader:
    """The reader of a dialect that somebody named. Raises `INVALID_ARGUMENT` for one that there is not."""
    known = next((name for name in DIALECTS if name == dialect), None)
    if known is None:
        names = " or ".join(map(repr, DIALECTS))
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"a dialect is {names}; there is no {dialect!r}")
    return READERS[known]
