"""Check that a file quotes the lines of others that match a pattern: all of them, and none that is made up (R9)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from lcp_engine.core.mission.spec import FileQuotes
from lcp_engine.core.patterns import compile_patterns
from lcp_engine.errors import LcpError
from lcp_engine.sandbox.list_tree import list_files
from lcp_engine.sandbox.read_text import read_bytes
from lcp_engine.sandbox.root import Root

MOST_FILES = 10_000
MOST_BYTES = 10 * 1024 * 1024
MOST_TOLD = 5


def misquoted(check: FileQuotes, root: Root, may_read: Callable[[str], bool]) -> str | None:
    """What is wrong with the quotations, None where they are true: each line that matches stands in a list item with
    the path of its file, and each list item that matches is such a line. White space does not count.

    Files that are no UTF-8 text, that may not be read or that are larger than `MOST_BYTES` have no lines.
    """
    try:
        given = [line for line in _matching(_read(root, check.path), check) if line.startswith("- ")]
        listing = list_files(root, "", compile_patterns([check.files]), limit=MOST_FILES)
    except (LcpError, UnicodeDecodeError) as refused:
        return str(refused)
    if listing.total > MOST_FILES:
        return f"at most {MOST_FILES:,} files are looked through, {check.files} matches {listing.total:,}"
    sources = [path for path in listing.files if path != check.path and may_read(path)]
    wanted = [(path, line) for path in sources for line in _lines_of(root, path, check)]
    missing = [
        f"{path}: {line}" for path, line in wanted if not any(path in one and line in one for one in given)
    ]
    invented = [one for one in given if not any(path in one and line in one for path, line in wanted)]
    told = [*_told("is not quoted", missing), *_told("is in no file that it names", invented)]
    return "; ".join(told) or None


def _told(fault: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (f"{line!r} {fault}" for line in lines[:MOST_TOLD])
    if len(lines) > MOST_TOLD:
        yield f"and {len(lines) - MOST_TOLD} more"


def _lines_of(root: Root, path: str, check: FileQuotes) -> list[str]:
    try:
        return _matching(_read(root, path), check)
    except (LcpError, UnicodeDecodeError):
        return []


def _matching(text: str, check: FileQuotes) -> list[str]:
    import re2  # type: ignore[import-untyped]  # ships no types; slow to load, and seldom needed

    pattern = re2.compile(check.pattern)
    return [" ".join(line.split()) for line in text.splitlines() if pattern.search(line)]


def _read(root: Root, path: str) -> str:
    opened = root.open_file(path)
    try:
        return read_bytes(opened.descriptor, opened.size, MOST_BYTES, path).decode("utf-8-sig")
    finally:
        os.close(opened.descriptor)
