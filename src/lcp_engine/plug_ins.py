"""Code of others: where this interpreter finds packages, what they offer to the engine, and a user's own files."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def offered_in(group: str) -> Sequence[EntryPoint]:
    """The entry points of a group. A process opens all packages on its path for that, and does it once."""
    return _read(group, tuple(sys.path))


@lru_cache(maxsize=3)
def _read(group: str, path: tuple[str, ...]) -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points  # slow to import

    return tuple(entry_points(group=group))


class FileFailed(Exception):
    """A file of Python raised an error, which the text says in a line."""


def run_file(path: Path, prefix: str) -> ModuleType:
    """Run a user's Python file as a module whose name begins with `prefix`. Raises `FileFailed`."""
    module = ModuleType(f"{prefix}{hashlib.sha256(str(path).encode()).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # pydantic looks for the names in annotations there
    try:
        # Not through the import system: it would run compiled code beside the file, which no rule protects.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # noqa: S102 -- the user's own code
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's code may raise anything, SystemExit too
        del sys.modules[module.__name__]
        raise FileFailed(_told(error, path)) from error
    return module


def _told(error: BaseException, path: Path) -> str:
    """The error in a line, with the line of the file where it arose, if it did there."""
    import traceback  # slow to load

    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    said = str(error) if isinstance(error, LcpError) else "".join(traceback.format_exception_only(error))
    return (f"line {lines[-1]}: " if lines else "") + " ".join(said.split())


def import_paths(*, needs_here: bool = False) -> list[str]:
    """The directories that this interpreter imports from, without the current directory unless it `needs_here`."""
    hidden = None if needs_here else Path.cwd()
    return [place for place in sys.path if Path(place).is_absolute() and Path(place) != hidden]
