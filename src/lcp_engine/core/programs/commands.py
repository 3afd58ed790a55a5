"""Decide whether a mission allows a command: a program and its arguments, compared one by one. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from functools import lru_cache

from lcp_engine.core.json_values import JsonValue

ANY_MORE = "..."
"""As the last part of an entry: any further arguments, or none."""


def allows(entries: Iterable[Sequence[str]], command: Sequence[str]) -> bool:
    """True if an entry fits a command.

    The program is named as it is; in an argument `*` and `?` stand for characters.
    """
    return any(_fits(tuple(entry), command) for entry in entries)


def as_entry(command: Sequence[str]) -> str:
    """The entry that fits exactly this command, as a mission file states it."""
    return json.dumps(list(command), ensure_ascii=False)


def split_command(command: JsonValue) -> JsonValue:
    """A command line split as a shell would split it, without expansion. Raises ValueError."""
    return [*shlex.split(command)] if isinstance(command, str) else command


def _fits(entry: Sequence[str], command: Sequence[str]) -> bool:
    has_more = entry[-1] == ANY_MORE
    parts = entry[:-1] if has_more else entry
    if not parts or len(command) < len(parts) or (len(command) > len(parts) and not has_more):
        return False
    program, *arguments = parts
    return command[0] == program and all(
        _expression(part).fullmatch(argument) for part, argument in zip(arguments, command[1:], strict=False)
    )


@lru_cache(maxsize=1024)
def _expression(part: str) -> re.Pattern[str]:
    inner = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in part)
    return re.compile("".join(inner), re.DOTALL)
