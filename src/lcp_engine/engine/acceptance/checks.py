"""Look whether a mission's acceptance checks pass (R9)."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Sequence
from importlib import import_module

from lcp_engine.core.mission.spec import AcceptCheck
from lcp_engine.engine.acceptance.quotes import misquoted
from lcp_engine.errors import LcpError
from lcp_engine.sandbox.read_text import read_bytes
from lcp_engine.sandbox.root import Root

MOST_BYTES = 10 * 1024 * 1024


def load_parsers() -> None:
    """Load what checks need and load late: where nothing outside the root can be opened, that is too late."""
    for name in ("ast", "re2", "yaml"):
        import_module(name)


def unmet(
    checks: Sequence[AcceptCheck], root: Root, may_read: Callable[[str], bool] = lambda path: True
) -> tuple[str, ...]:
    """What does not pass now: the check and the fact, a sentence each. Files that may not be read quote nothing.

    What the planner verifies is left to it.
    """
    found = ((check, _fault(check, root, may_read)) for check in checks if check.verify is None)
    return tuple(f"{check.description}: {fault}" for check, fault in found if fault is not None)


def _fault(check: AcceptCheck, root: Root, may_read: Callable[[str], bool]) -> str | None:
    assert check.path is not None
    if check.file_quotes is not None:
        return misquoted(check.file_quotes, root, may_read)
    try:
        opened = root.open_file(check.path)
    except LcpError as error:
        return str(error)
    try:
        if check.file_exists is not None:
            return None
        data = read_bytes(opened.descriptor, opened.size, MOST_BYTES, check.path)
    except LcpError as error:
        return str(error)
    finally:
        os.close(opened.descriptor)
    text = data.decode("utf-8", errors="replace")
    if check.file_matches is not None:
        return None if _matches(check.file_matches.pattern, text) else "the pattern is not found in it"
    return _syntax_error(check.path, text)


def _matches(pattern: str, text: str) -> bool:
    import re2  # type: ignore[import-untyped]  # ships no types; slow to load, and seldom needed

    return re2.search(pattern, text) is not None


def _syntax_error(path: str, text: str) -> str | None:
    """Why `text` does not parse as what the name says it is; other names need only be text."""
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
    except MemoryError:  # so Python's own parser calls nesting that is too deep for it
        return "it does not parse: it nests too deep"
    return None
