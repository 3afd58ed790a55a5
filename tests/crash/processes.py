"""Fork processes that may die: the parent has everything imported and never opens a database."""

from __future__ import annotations

import gc
import json
import os
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import CompileError

from lcp_engine.feature import Feature, installed
from lcp_engine.store.db.open import make_backend
from lcp_engine.store.db.statements import Statement
from lcp_engine.workers.registry import find_workers

T = TypeVar("T")
LAZY = (
    "lcp_engine.store.db.postgres", "sqlite3", "yaml", "pathspec", "re2", "platformdirs.unix", "encodings.ascii",
    "lcp_engine.features.plans.course", "lcp_engine.features.programs.servers.external", "lcp_engine.runner.timetable",
)  # fmt: skip
FACES = {"commands", "pages", "actions", "routes", "doors"}
"""Points of features that no process of these tests reaches."""


def import_all(url: str) -> None:
    """Import every module, find every feature and compile every statement once instead of in every process."""
    for module in (*LAZY, *_modules(installed())):
        with suppress(ModuleNotFoundError):
            import_module(module)
    find_workers()
    database = make_backend(url).name
    for known in gc.get_objects():
        if isinstance(known, Statement):
            with suppress(CompileError):  # only the other database understands it
                known.sql(database)
    gc.freeze()


def _modules(stated: Feature) -> set[str]:
    """The modules of the places that features state."""
    points = (str(point) for name, point in stated._asdict().items() if name not in FACES)
    return {module for point in points for module in re.findall(r"'([\w.]+):\w+'", point)}


def begin(work: Callable[[], object], errors: Path | None = None) -> int:
    """Fork a process that does `work` and exits, with 70 if that raises; its id. Its stderr is appended to `errors`."""
    child = os.fork()
    if child == 0:
        try:
            if errors is not None:
                os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
            work()
        except BaseException:  # noqa: BLE001 -- a fork must not go on as its parent would
            traceback.print_exc()
            os._exit(70)
        os._exit(0)
    return child


def end_of(child: int) -> int:
    """Wait for a process; its exit code, or minus the signal that killed it."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def has_ended(child: int) -> bool:
    """Whether it has ended; `end_of` can still collect its exit code."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def do(work: Callable[[], object], errors: Path | None = None) -> int:
    """Do `work` in a process and return how that ended."""
    return end_of(begin(work, errors))


def ask(question: Callable[[], T], file: Path) -> T:
    """The result of a process as JSON through `file`: a process that has used SQLite must not be forked."""
    assert do(lambda: file.write_text(json.dumps(question()))) == 0
    answer: T = json.loads(file.read_text())
    return answer
