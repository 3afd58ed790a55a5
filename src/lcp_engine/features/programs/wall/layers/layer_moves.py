"""Move ignored output from an upper directory into a layer, so that an overlay shows the same as before.

Every step can be done again after a kill: what is not in the upper directory any more has been moved.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from lcp_engine.features.programs.wall.layers.trail import Trail, open_fully
from lcp_engine.features.programs.wall.layers.upper import (
    LONGEST_PATH,
    OPAQUE,
    Act,
    Move,
    is_opaque,
    is_whiteout,
)
from lcp_engine.features.programs.wall.views.covers import Below, mark_of
from lcp_engine.sandbox.directories import status_of

_FULLY = 0o700
_WHITEOUT = stat.S_IFCHR


@dataclass(frozen=True)
class MoveList:
    """Moves of a run as they are written down before the first one.

    `modes` are those of directories that have to be opened for it, and of the directories that the moved paths are in.
    `covers` are marks of what lies below moved entries. The layer grows by `bytes` and `files`.
    """

    moves: Sequence[Move]
    modes: Mapping[str, int] = field(default_factory=dict)
    covers: Mapping[str, str | None] = field(default_factory=dict)
    bytes: int = 0
    files: int = 0


def list_moves(
    up: Trail,
    layer: Trail,
    below: Below,
    moves: Sequence[Move],
    *,
    start: int,
    covered: Mapping[str, str | None],
) -> MoveList:
    """The moves with all that is needed to carry them out. `covered` are the marks of entries of the layer so far.

    Left out is what lies so deep that no program can name it by its path. Nothing is changed but the modes of
    directories that are closed to this user, which `up` puts back.
    """
    listing = _Listing(up, layer, below, start, covered)
    kept = tuple(move for move in moves if len(os.fsencode(move.path)) < LONGEST_PATH)
    for move in kept:
        listing.add(move)
    return MoveList(kept, listing.modes, listing.covers, listing.bytes, listing.files)


@dataclass
class _Listing:
    up: Trail
    layer: Trail
    below: Below
    start: int
    covered: Mapping[str, str | None]
    modes: dict[str, int] = field(default_factory=dict)
    covers: dict[str, str | None] = field(default_factory=dict)
    bytes: int = 0
    files: int = 0
    in_layer: dict[str, bool] = field(default_factory=dict)
    """The directory that was asked for last, and whether the layer has it."""

    def add(self, move: Move) -> None:
        for above in _above(move.path):
            if above not in self.modes:
                self.modes[above] = self._mode_of(above)
        if move.act is Act.HIDE:
            self._cover(move.path)
        elif move.act is Act.MOVE:
            self._add_all(move.path)

    def _mode_of(self, path: str) -> int:
        """The mode of a directory as the program left it, else as it was below."""
        parent, name = _split(path)
        status: os.stat_result | None = None
        with suppress(OSError):
            if f"{path}/" in self.up.closed:
                return self.up.closed[f"{path}/"]
            status = status_of(self.up.open(parent), name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            status = self.below.status(path)
        return stat.S_IMODE(status.st_mode) if status is not None and stat.S_ISDIR(status.st_mode) else 0o755

    def _add_all(self, path: str) -> None:
        """Count what is moved, and mark what it lies over: whole directories below what hides them."""
        waiting = [(path, True)]
        while waiting:
            one, marks = waiting.pop()
            parent, name = _split(one)
            here = self.up.open(parent)
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            self._count(parent, name, status)
            if not stat.S_ISDIR(status.st_mode):
                if marks:
                    self._cover(one)
                continue
            mode = stat.S_IMODE(status.st_mode)
            if mode & _FULLY != _FULLY:
                self.modes[one] = mode
            if marks and (is_opaque(here, name) or not self.below.has(f"{one}/")):
                self._cover(one)
                marks = False
            waiting += [(f"{one}/{inner}", marks) for inner in os.listdir(self.up.open(f"{one}/"))]

    def _count(self, parent: str, name: str, status: os.stat_result) -> None:
        """Count an entry, less the one of the layer that it replaces."""
        self.files += 1
        self.bytes += status.st_blocks * 512
        if parent not in self.in_layer:
            self.in_layer = {parent: self.layer.has(parent)}
        if self.in_layer[parent]:
            with suppress(OSError):
                there = os.stat(name, dir_fd=self.layer.open(parent), follow_symlinks=False)
                self.files -= 1
                self.bytes -= there.st_blocks * 512

    def _cover(self, path: str) -> None:
        mark = mark_of(self.below, path, self.start)
        if mark is not None or path in self.covered:
            self.covers[path] = mark


def carry_out(listed: MoveList, up: int, layer: int, trash: int) -> None:
    """Carry out a list, or what is left of it. What is replaced goes into the open directory `trash`.

    Raises OSError, for instance if there is no room; the list can then be carried out again.
    """
    with Trail(up, opens_all=True) as upper, Trail(layer, opens_all=True) as target:
        merge = _Merge(upper, target, trash, listed.modes)
        for move in listed.moves:
            merge.carry_out(move)
    with Trail(layer, opens_all=True) as target:
        for path in sorted(listed.modes, key=lambda one: (-one.count("/"), one)):
            with suppress(OSError):
                os.fchmod(target.open(f"{path}/"), listed.modes[path])
                target.closed.pop(f"{path}/", None)


def take_out(layer: Trail, path: str, trash: int) -> None:
    """Remove an entry of a layer, and the directories above it that are empty then. Raises OSError."""
    parent, name = _split(path)
    with suppress(FileNotFoundError, NotADirectoryError):
        _throw_away(layer.open(parent), name, trash)
    while parent:
        above, name = _split(parent[:-1])
        try:
            here = layer.open(above)
            if is_opaque(here, name):
                return
            os.rmdir(name, dir_fd=here)
        except OSError:
            return
        layer.closed.pop(parent, None)
        parent = above


@dataclass
class _Merge:
    up: Trail
    layer: Trail
    trash: int
    modes: Mapping[str, int]

    def carry_out(self, move: Move) -> None:
        match move.act:
            case Act.REMOVE:
                take_out(self.layer, move.path, self.trash)
            case Act.HIDE:
                self._hide(move.path)
            case Act.MOVE:
                self._move(move.path)

    def _hide(self, path: str) -> None:
        parent, name = _split(path)
        here = self._directory(parent)
        status = status_of(here, name)
        if status is not None and is_whiteout(status):
            return
        if status is not None:
            _throw_away(here, name, self.trash)
        os.mknod(name, _WHITEOUT, 0, dir_fd=here)

    def _move(self, path: str) -> None:
        """Move an entry; a directory that is joined with one of the layer entry by entry."""
        waiting: list[tuple[str, os.stat_result | None]] = [(path, None)]
        while waiting:
            one, joined = waiting.pop()
            parent, name = _split(one)
            try:
                source = self.up.open(parent)
            except FileNotFoundError:
                continue  # it has been moved
            if joined is not None:
                self._finish(source, one, name, joined)
                continue
            status = status_of(source, name)
            if status is None:
                continue
            if self._is_joined(source, parent, name, status):
                waiting.append((one, status))
                waiting += [(f"{one}/{inner}", None) for inner in os.listdir(self.up.open(f"{one}/"))]
            else:
                target = self._directory(parent)
                self._replace(self.up.open(parent), target, name, status)

    def _is_joined(self, source: int, parent: str, name: str, status: os.stat_result) -> bool:
        there = status_of(self._directory(parent), name)
        return (
            there is not None
            and stat.S_ISDIR(there.st_mode)
            and stat.S_ISDIR(status.st_mode)
            and not is_opaque(source, name)
        )

    def _replace(self, source: int, target: int, name: str, status: os.stat_result) -> None:
        there = status_of(target, name)
        if stat.S_ISDIR(status.st_mode):
            here, _ = open_fully(name, source)  # else it cannot be moved
            try:
                if there is not None:  # which hid what the root has; the directory must do so from now on
                    os.setxattr(here, OPAQUE, b"y")
            finally:
                os.close(here)
        if there is not None:  # ext4 writes a file to the disk at once when it is renamed over another one
            _throw_away(target, name, self.trash)
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)

    def _finish(self, source: int, path: str, name: str, before: os.stat_result) -> None:
        """Give a directory of the layer the mode and the time of the one that was joined with it."""
        here = self.layer.open(f"{path}/")
        mode = self.modes.get(path, stat.S_IMODE(before.st_mode))
        if mode & _FULLY == _FULLY:
            self.layer.closed.pop(f"{path}/", None)
            os.fchmod(here, mode)
        os.utime(here, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.up.closed.pop(f"{path}/", None)
        with suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=source)

    def _directory(self, parent: str) -> int:
        """The directory of the layer at a path that ends in "/", made if it is missing. Raises OSError."""
        try:
            return self.layer.open(parent)
        except (FileNotFoundError, NotADirectoryError):
            pass
        for path in _above(f"{parent}."):
            above, name = _split(path)
            here = self.layer.open(above)
            status = status_of(here, name)
            if status is None:
                os.mkdir(name, self.modes.get(path, 0o755) | _FULLY, dir_fd=here)
            elif not stat.S_ISDIR(status.st_mode):
                self._make_over(here, name)
            else:
                continue
            if os.geteuid() == 0:  # else the program, which is another user's, could not write in it
                status = os.fstat(self.up.open(f"{path}/"))
                os.chown(name, status.st_uid, status.st_gid, dir_fd=here, follow_symlinks=False)
        return self.layer.open(parent)

    def _make_over(self, here: int, name: str) -> None:
        """Make a directory in place of a file or a whiteout, which hides what the root has as that did."""
        new = uuid4().hex
        os.mkdir(new, 0o755, dir_fd=self.trash)
        made, _ = open_fully(new, self.trash)
        try:
            os.setxattr(made, OPAQUE, b"y")
        finally:
            os.close(made)
        os.unlink(name, dir_fd=here)
        os.rename(new, name, src_dir_fd=self.trash, dst_dir_fd=here)


def _throw_away(here: int, name: str, trash: int) -> None:
    status = status_of(here, name)
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode):
        os.close(open_fully(name, here)[0])
        os.rename(name, uuid4().hex, src_dir_fd=here, dst_dir_fd=trash)
    else:
        os.unlink(name, dir_fd=here)


def _split(path: str) -> tuple[str, str]:
    """The directory of a path, with "/" at the end unless it is the top, and the name."""
    parent, slash, name = path.rpartition("/")
    return parent + slash, name


def _above(path: str) -> Iterator[str]:
    """Directories above a path, outer ones first."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)
