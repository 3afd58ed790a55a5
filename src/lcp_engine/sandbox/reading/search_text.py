"""Find the lines of texts that contain a text or match a pattern. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.reading.encoding import BAD_BYTE, encoding_of

MOST_SHOWN = 400
"""Characters of a line that are shown."""
_BEFORE = 100
"""Characters before what was found in a longer line."""
_MEMORY = 8 << 20


class _Match(Protocol):
    def start(self) -> int: ...
    def end(self) -> int: ...


Find: TypeAlias = Callable[[bytes, int], "tuple[int, int] | None"]
"""Where the first match from a position on begins and ends, in UTF-8."""


class Finder(NamedTuple):
    """Way to find a text. `joins`: what is in one of several texts is in all of them joined by line feeds, too."""

    find: Find
    joins: bool


# What depends on the ends of the whole text, or may: \A, \z, and flags that change what ^ and $ are.
_ENDS = re.compile(r"\\[AzZC]|\(\?(?!:)")


def finder_of(text: str, *, is_pattern: bool = False, ignore_case: bool = False) -> Finder:
    """Finds `text`, or what the RE2 pattern `text` matches. Raises INVALID_PATTERN."""
    joins = not is_pattern or _ENDS.search(text) is None
    return Finder(_find(text, is_pattern=is_pattern, ignore_case=ignore_case), joins)


def _find(text: str, *, is_pattern: bool, ignore_case: bool) -> Find:
    if not is_pattern and not ignore_case:
        return _literal(text.encode())
    import re2  # type: ignore[import-untyped]  # google-re2 ships no types; slow to load

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.case_sensitive = not ignore_case
    regex = f"(?m){text}" if is_pattern else re2.escape(text)
    try:
        search: Callable[[bytes, int], _Match | None] = re2.compile(regex.encode(), options).search
    except re2.error as error:
        reason = str(error.args[0], "utf-8") if isinstance(error.args[0], bytes) else str(error)
        raise LcpError(
            ErrorCode.INVALID_PATTERN,
            f"text {text!r} is not an RE2 pattern: {reason.removesuffix(f': {regex}')}",
            advice="Correct the pattern; without is_pattern, its characters are searched as they are.",
        ) from error

    def find(data: bytes, at: int) -> tuple[int, int] | None:
        match = search(data, at)
        return None if match is None else (match.start(), match.end())

    return find


def _literal(needle: bytes) -> Find:
    length = len(needle)

    def find(data: bytes, at: int) -> tuple[int, int] | None:
        start = data.find(needle, at)
        return None if start < 0 else (start, start + length)

    return find


def searchable(data: bytes) -> bytes | None:
    """The text of a file as UTF-8 with bare line feeds; None for a binary file."""
    if b"\0" in data or not (data.isascii() or _is_utf8(data)) or data.startswith(codecs.BOM_UTF8):
        encoding = encoding_of(data)
        if encoding is None:
            return None
        data = BAD_BYTE.sub("\ufffd", encoding.decode(data)).encode()
    return data.replace(b"\r\n", b"\n") if b"\r" in data else data


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def matching_lines(data: bytes, find: Find) -> Iterator[tuple[int, int, int, int]]:
    """The lines that hold a match: where each begins and ends, and where in it the first match does.

    A match that goes beyond its line does not count.
    """
    at = 0
    while at <= len(data) and (found := find(data, at)) is not None:
        start, end = found
        if start == len(data) and (not data or data.endswith(b"\n")):
            return  # an empty match behind the last line
        first = data.rfind(b"\n", 0, start) + 1
        last = data.find(b"\n", start)
        last = len(data) if last < 0 else last
        if end > last:
            inner = find(data[first:last], 0)
            if inner is None:
                at = last + 1
                continue
            start, end = first + inner[0], first + inner[1]
        yield first, last, start, end
        at = last + 1


def shown_line(line: str, start: int) -> str:
    """A line with what begins at `start`; of a longer one it is said how much is left out on each side."""
    if len(line) <= MOST_SHOWN:
        return line
    first = min(max(start - _BEFORE, 0), len(line) - MOST_SHOWN)
    left, right = first, len(line) - first - MOST_SHOWN
    before = f"[{left:,} characters] " if left else ""
    after = f" [{right:,} characters]" if right else ""
    return f"{before}{line[first : first + MOST_SHOWN]}{after}"
