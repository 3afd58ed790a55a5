"""Remember which files of a root the entries of a layer lie over, so that what has changed there since is seen."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping

from lcp_engine.wall.trail import Trail
from lcp_engine.wall.upper import is_opaque

MOST_IN_ONE = 50_000
"""Entries of a covered directory that count; of a larger one, those that are found first."""
CHANGED = "changed"
"""A mark that no file has: of a file that changed while the program ran."""


def mark_of(root: Trail, path: str, start: int | None = None) -> str | None:
    """A mark of what the root has at a path, which changes with it; None if it has nothing there.

    A file that has changed since `start` is marked as `CHANGED`.
    """
    above, _, name = path.rpartition("/")
    try:
        status = os.stat(name, dir_fd=root.open(f"{above}/" if above else ""), follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return _marked(status, start)
    digest = hashlib.sha256()
    for inner, one in _beneath(root, f"{path}/"):
        mark = _marked(one, start)
        if mark == CHANGED:
            return CHANGED
        digest.update(f"{inner}\0{mark}\0".encode(errors="surrogateescape"))
    return f"directory {digest.hexdigest()}"


def _marked(status: os.stat_result, start: int | None) -> str:
    if stat.S_ISDIR(status.st_mode):
        return f"directory {status.st_ino}"
    if start is not None and status.st_ctime_ns >= start:
        return CHANGED
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _beneath(root: Trail, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Paths beneath a directory and their status, in an order that does not change."""
    waiting, left = [prefix], MOST_IN_ONE
    while waiting:
        above = waiting.pop()
        try:
            here = root.open(above)
            names = sorted(os.listdir(here))
        except OSError:
            continue
        for name in names:
            if (left := left - 1) < 0:
                return
            try:
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                waiting.append(f"{above}{name}/")
            yield f"{above}{name}", status


def entries_over(layer: Trail, root: Trail, prefix: str) -> Iterator[str]:
    """Paths of a layer that lie over something in the root: files, whiteouts, opaque directories.

    `prefix` is a directory that both have.
    """
    waiting = [prefix]
    while waiting:
        above = waiting.pop()
        try:
            below = root.open(above)
            here = layer.open(above)
            names = {*os.listdir(here)}.intersection(os.listdir(below))
        except OSError:
            continue
        found = []
        for name in sorted(names):
            if _merges(here, below, name):
                waiting.append(f"{above}{name}/")
            else:
                found.append(f"{above}{name}")
        yield from found


def _merges(here: int, below: int, name: str) -> bool:
    """True if a directory of the layer is joined with that of the root."""
    mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode) or is_opaque(here, name):
        return False
    return stat.S_ISDIR(os.stat(name, dir_fd=below, follow_symlinks=False).st_mode)


def outdated(layer: Trail, root: Trail, covers: Mapping[str, str | None]) -> Iterator[str]:
    """Paths of the layer below which the root is not as it was."""
    for path, mark in covers.items():
        if mark_of(root, path) != mark:
            yield path
    for path in entries_over(layer, root, ""):
        if path not in covers:
            yield path
