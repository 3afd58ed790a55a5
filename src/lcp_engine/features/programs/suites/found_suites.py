"""Fill in the variables of a mission that the files of its root tell: what runs the tests of a project."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from lcp_engine.core.mission.parse import Outline
from lcp_engine.errors import LcpError
from lcp_engine.features.programs.suites.suites import Suite, paths_to_look_at, recognised_suite
from lcp_engine.sandbox.root import Root

_MOST_BYTES = 256 * 1024
"""Of a file that is looked at."""
_MOST_NAMES = 5000


def with_found(outline: Outline, given: Mapping[str, str], root: Callable[[], Path]) -> dict[str, str]:
    """The variables that were given, and those that the mission takes from its root, if they are found there.

    `root` is called only if the mission has any. Raises what `root` raises.
    """
    wanted = {
        name: variable.from_root
        for name, variable in outline.variables.items()
        if variable.from_root is not None and name not in given
    }
    found = suite_of(root()) if wanted else None
    if found is None:
        return {**given}
    told = {"test_command": found.command, "test_environment": found.environment}
    return {**given, **{name: told[source] for name, source in wanted.items()}}


def suite_of(place: Path) -> Suite | None:
    """The command that runs the tests of the project in a directory; None if it is not recognised."""
    with Root(place) as root:
        return recognised_suite(_paths(root), lambda path: _beginning(root, path))


def _paths(root: Root) -> list[str]:
    """Names at the top of a root and in some of its directories, which end in "/"."""
    found = _names(root, "")
    for directory in found:  # it grows: `.venv/` leads to `.venv/bin/`
        if paths_to_look_at([directory]):
            found += [f"{directory}{name}" for name in _names(root, directory.rstrip("/"))]
    return found


def _names(root: Root, directory: str) -> list[str]:
    with suppress(LcpError, OSError):
        descriptor = root.open_directory(directory)
        try:
            with os.scandir(descriptor) as entries:
                named = [f"{entry.name}{'/' * entry.is_dir(follow_symlinks=False)}" for entry in entries]
                return sorted(named)[:_MOST_NAMES]
        finally:
            os.close(descriptor)
    return []


def _beginning(root: Root, path: str) -> str:
    with suppress(LcpError, OSError), os.fdopen(root.open_file(path).descriptor, "rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace")
    return ""
