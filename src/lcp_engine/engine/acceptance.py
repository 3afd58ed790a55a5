"""Run one of a mission's acceptance checks (R9): `runner.confined` does so in a process of limited time and memory."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

from lcp_engine.core.mission.accept import AcceptCheck, FileQuotes
from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.reading.list_tree import list_files
from lcp_engine.sandbox.reading.read_text import read_bytes
from lcp_engine.sandbox.root import Opened, Root

MAX_BYTES = 10 * 1024 * 1024
"""Of one checked file."""
MAX_SOURCES = 10_000
"""Files whose lines a `file_quotes` check compares."""
MAX_LISTED = 5
"""Wrong quotations named in one message."""
MAX_SHOWN = 200
"""Characters of a line that a message quotes."""


def load_parsers() -> None:
    """Import the lazily loaded modules that checks need: a confined process can no longer open them."""
    for name in ("ast", "re2", "yaml"):
        import_module(name)


def fault_of(
    check: AcceptCheck, root: Root, may_read: Callable[[str], bool] = lambda path: True
) -> str | None:
    """Reason why a check on a file does not pass now; None if it does. Files that may not be read quote nothing.

    Takes time and memory without bound, because a parser may. Raises `MemoryError`.
    """
    assert check.path is not None
    if check.file_quotes is not None:
        return misquoted(check.file_quotes, root, may_read)
    try:
        opened = _open(root, check.path, may_read)
    except LcpError as error:
        return str(error)
    try:
        if check.file_exists is not None:
            return None
        data = read_bytes(opened.descriptor, opened.size, MAX_BYTES, check.path)
    except LcpError as error:
        return str(error)
    finally:
        os.close(opened.descriptor)
    text = data.decode("utf-8", errors="replace")
    if check.file_matches is not None:
        return None if _matches(check.file_matches.pattern, text) else "the pattern is not found in it"
    return _syntax_error(check.path, text)


def _open(root: Root, path: str, may_read: Callable[[str], bool]) -> Opened:
    """The file, unless it is a link to one that policy denies: what a check finds in it is told to the planner."""
    opened = root.open_file(path)
    if opened.path != path and not may_read(opened.path):
        os.close(opened.descriptor)
        raise LcpError(
            ErrorCode.PATH_DENIED, f"{path!r} leads to {opened.path!r}, which policy denies", advice=GENERAL
        )
    return opened


def _matches(pattern: str, text: str) -> bool:
    import re2  # type: ignore[import-untyped]  # ships no types; slow to load and rarely needed

    return re2.search(pattern, text) is not None


def _syntax_error(path: str, text: str) -> str | None:
    """Reason why `text` does not parse as what its suffix says; files with another suffix need only be text."""
    import ast

    import yaml

    try:
        if path.endswith(".json"):
            json.loads(text)
        elif path.endswith(".toml"):
            tomllib.loads(text)
        elif path.endswith((".yaml", ".yml")):
            yaml.safe_load(text)
        elif path.endswith(".py"):
            ast.parse(text)
    except (ValueError, SyntaxError, RecursionError, yaml.YAMLError) as error:
        return f"it does not parse: {str(error).splitlines()[0]}"
    except MemoryError:
        if path.endswith(".py"):  # raised by Python's own parser for nesting that is too deep as well
            return "it does not parse: it nests too deep or is too large"
        raise
    return None


def misquoted(check: FileQuotes, root: Root, may_read: Callable[[str], bool]) -> str | None:
    """Fault of the quotations, None if they are right.

    Each matching line must appear in a list item that also names its file, and each matching list item must quote such
    a line. White space does not count. Files that are not UTF-8 text, that may not be read or that are larger than
    `MAX_BYTES` have no lines.
    """
    try:
        items = [line for line in _matching_lines(root, check.path, check, may_read) if line.startswith("- ")]
        listing = list_files(root, "", compile_patterns([check.files]), limit=MAX_SOURCES)
    except (LcpError, UnicodeDecodeError) as refused:
        return str(refused)
    if listing.total > MAX_SOURCES:
        return f"at most {MAX_SOURCES:,} files are searched, {check.files} matches {listing.total:,}"
    sources = [path for path in listing.files if path != check.path and may_read(path)]
    lines = [(path, line) for path in sources for line in _lines_of_source(root, path, check, may_read)]
    naming = {path: [item for item in items if path in item] for path, _ in lines}
    quoting = {(path, line): [item for item in naming[path] if line in item] for path, line in lines}
    missing = [f"{path}: {line}" for path, line in lines if not quoting[path, line]]
    right = {item for found in quoting.values() for item in found}
    invented = [item for item in items if item not in right]
    faults = [*_listed("is not quoted", missing), *_listed("is in no file that it names", invented)]
    return "; ".join(faults) or None


def _listed(fault: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:MAX_LISTED]:
        shown = line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}… ({len(line):,} characters)"
        yield f"{shown!r} {fault}"
    if len(lines) > MAX_LISTED:
        yield f"and {len(lines) - MAX_LISTED} more"


def _lines_of_source(root: Root, path: str, check: FileQuotes, may_read: Callable[[str], bool]) -> list[str]:
    try:
        return _matching_lines(root, path, check, may_read)
    except (LcpError, UnicodeDecodeError):
        return []


def _matching_lines(root: Root, path: str, check: FileQuotes, may_read: Callable[[str], bool]) -> list[str]:
    """The lines of a file in which the pattern is found, with single spaces."""
    import re2  # slow to load and rarely needed

    opened = _open(root, path, may_read)
    try:
        text = read_bytes(opened.descriptor, opened.size, MAX_BYTES, path).decode("utf-8-sig")
    finally:
        os.close(opened.descriptor)
    pattern = re2.compile(check.pattern)
    return [" ".join(line.split()) for line in text.splitlines() if pattern.search(line)]
