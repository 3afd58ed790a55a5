"""Remember which files of a root the entries of a layer lie over, so that what has changed there since is seen."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from lcp_engine.features.programs.wall.layers.trail import Trail
from lcp_engine.features.programs.wall.layers.upper import is_opaque
from lcp_engine.sandbox.directories import status_of

MOST_IN_ONE = 50_000
"""Entries of a covered directory that count; of a larger one, those that are found first."""
CHANGED = "changed"
"""A mark that no file has: of a file that changed while the program ran."""


@dataclass(frozen=True)
class Base:
    """The ground under a layer: the root at `path`, or the stage there, joined with `shown`, directories of `root`."""

    path: str
    root: str = ""
    shown: Collection[str] = ()

    @contextmanager
    def opened(self) -> Iterator[Below]:
        """Open it. Raises OSError."""
        with ExitStack() as stack:
            trails = list[Trail]()
            for path in (self.path, self.root) if self.shown else (self.path,):
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                trails.append(stack.enter_context(Trail(descriptor)))
            yield Below(trails, self.shown)


@dataclass(frozen=True)
class Bases:
    """The ground under a layer of several parts, each a directory at its top, over a base of its own or none."""

    parts: Mapping[str, Base]

    @contextmanager
    def opened(self) -> Iterator[Below]:
        """Open all. Raises OSError."""
        with ExitStack() as stack:
            yield _BelowParts({name: stack.enter_context(one.opened()) for name, one in self.parts.items()})


class Below:
    """An opened `Base`. Paths of directories end in "/"; "" is the top."""

    def __init__(self, trails: Sequence[Trail], shown: Collection[str] = ()) -> None:
        self._trails = trails
        self._shown = frozenset(f"{path}/" for path in shown)
        self._names = names_by_directory(shown)

    def status(self, path: str) -> os.stat_result | None:
        """The status of an entry; None if there is none."""
        at = path.rfind("/") + 1
        for trail in self._trails_with(f"{path}/"):
            with suppress(OSError):
                if (status := status_of(trail.open(path[:at]), path[at:] or ".")) is not None:
                    return status
        return None

    def names(self, directory: str) -> set[str]:
        """The names in a directory; none if it is not there, or cannot be listed."""
        names = set(self._names.get(directory, ()))
        for trail in self._trails_with(directory):
            with suppress(OSError):
                names.update(os.listdir(trail.open(directory)))
        return names

    def has(self, directory: str) -> bool:
        """True if the directory is there."""
        return any(trail.has(directory) for trail in self._trails_with(directory))

    def _trails_with(self, directory: str) -> Sequence[Trail]:
        at = directory.find("/") if self._shown else -1
        while at >= 0:
            if directory[: at + 1] in self._shown:
                return self._trails
            at = directory.find("/", at + 1)
        return self._trails[:1]


class _BelowParts(Below):
    """Opened `Bases`."""

    def __init__(self, parts: Mapping[str, Below]) -> None:
        super().__init__(())
        self._parts = parts

    def status(self, path: str) -> os.stat_result | None:
        part, inner = self._found(path)
        return part.status(inner) if part else None

    def names(self, directory: str) -> set[str]:
        part, inner = self._found(directory)
        if not directory:
            return {*self._parts}
        return part.names(inner) if part else set()

    def has(self, directory: str) -> bool:
        part, inner = self._found(directory)
        return part is not None and part.has(inner)

    def _found(self, path: str) -> tuple[Below | None, str]:
        name, _, inner = path.partition("/")
        return self._parts.get(name), inner


def names_by_directory(paths: Iterable[str]) -> dict[str, set[str]]:
    """Names that lead to the paths, by the directory that they are in, which ends in "/"; outer ones come first."""
    names: dict[str, set[str]] = {}
    for path in paths:
        at = 0
        while at >= 0:
            end = path.find("/", at)
            names.setdefault(path[:at], set()).add(path[at : end if end >= 0 else None])
            at = end + 1 or -1
    return names


def mark_of(below: Below, path: str, start: int | None = None) -> str | None:
    """A mark of what lies at a path, which changes with it; None if nothing does.

    A file that has changed since `start` is marked as `CHANGED`.
    """
    status = below.status(path)
    if status is None:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return _marked(status, start)
    digest = hashlib.sha256()
    for inner, one in _beneath(below, f"{path}/"):
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


def _beneath(below: Below, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Paths beneath a directory and their status, in an order that does not change."""
    waiting, left = [prefix], MOST_IN_ONE
    while waiting:
        above = waiting.pop()
        for name in sorted(below.names(above)):
            if (left := left - 1) < 0:
                return
            if (status := below.status(f"{above}{name}")) is None:
                continue
            if stat.S_ISDIR(status.st_mode):
                waiting.append(f"{above}{name}/")
            yield f"{above}{name}", status


def entries_over(layer: Trail, below: Below) -> Iterator[str]:
    """Paths of a layer that lie over something: files, whiteouts, opaque directories."""
    waiting = [""]
    while waiting:
        above = waiting.pop()
        try:
            here = layer.open(above)
            names = below.names(above).intersection(os.listdir(here))
        except OSError:
            continue
        found = []
        for name in sorted(names):
            if (status := below.status(f"{above}{name}")) is None:
                continue
            if stat.S_ISDIR(status.st_mode) and _is_joined(here, name):
                waiting.append(f"{above}{name}/")
            else:
                found.append(f"{above}{name}")
        yield from found


def _is_joined(here: int, name: str) -> bool:
    """True if an entry of the layer is joined with the directory below it."""
    mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
    return stat.S_ISDIR(mode) and not is_opaque(here, name)


def outdated(layer: Trail, below: Below, covers: Mapping[str, str | None]) -> Iterator[str]:
    """Paths of the layer below which something is not as it was."""
    for path, mark in covers.items():
        if mark_of(below, path) != mark:
            yield path
    for path in entries_over(layer, below):
        if path not in covers:
            yield path
