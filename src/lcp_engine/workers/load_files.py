"""Load kinds of jobs from Python files of the user: `lcp --workers FILE`, `LCP_WORKERS`, `workers` in config.yaml."""

from __future__ import annotations

import hashlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.own_places import protect
from lcp_engine.workers import registry

_ADVICE = "Correct the file; docs/kinds.md has an example."
_LOADED: set[Path] = set()


def load_workers(file: Path) -> None:
    """Run a file, which registers kinds with `@lcp_engine.worker`; each file once in a process.

    From then on no job of this process may read or write it. Raises `INVALID_ARGUMENT` if it cannot be read, raises an
    error, or registers nothing.
    """
    protect(file.expanduser())  # a job that writes it could run any code
    path = file.expanduser().resolve()
    if path in _LOADED:
        return
    if path.suffix != ".py" or not path.is_file():
        raise _refusal(path, "a Python file (.py) is expected")
    before = registry.registered_kinds()
    name = f"lcp_workers_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # pydantic looks for the names in annotations there
    try:
        # Not through the import system: it would run compiled code beside the file, which no rule protects.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # noqa: S102 -- the user's own code
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's code may raise anything, SystemExit too
        registry.unregister(registry.registered_kinds() - before)
        del sys.modules[name]
        raise _refusal(path, _told(error, path)) from error
    if registry.registered_kinds() == before:
        raise _refusal(path, "it registers no kind of job; a function with `@lcp_engine.worker(…)` does")
    _LOADED.add(path)


def _refusal(path: Path, fact: str) -> LcpError:
    return LcpError(ErrorCode.INVALID_ARGUMENT, f"workers {path}: {fact}", advice=_ADVICE)


def _told(error: BaseException, path: Path) -> str:
    """The error in a line, with the line of the file where it arose, if it did there."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    said = str(error) if isinstance(error, LcpError) else "".join(traceback.format_exception_only(error))
    return (f"line {lines[-1]}: " if lines else "") + " ".join(said.split())
