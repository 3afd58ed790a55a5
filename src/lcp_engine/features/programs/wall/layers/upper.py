"""Read what a program changed from the upper directory of its overlay.

Everything is opened by descriptors, following no link; nothing but regular files is opened, and none before its size is
known. The format is that of overlayfs with `userxattr`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from lcp_engine.features.programs.wall.layers.ignore_rules import Scope
from lcp_engine.features.programs.wall.layers.ignored import IgnoredFiles
from lcp_engine.features.programs.wall.layers.trail import Trail, open_file
from lcp_engine.sandbox.reading.list_tree import PRUNED, is_text

OPAQUE = "user.overlay.opaque"
LONGEST_PATH = 4096
"""Bytes of a path that the kernel takes, with a zero at the end."""
_CHUNK = 1 << 20
_TICKS = 100
_TICK_SECONDS = 0.001
"""Between two looks at the time of a file system, which the kernel moves on every 1 to 10 ms."""


class Type(StrEnum):
    """Types of entries of a directory."""

    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"


class Kind(StrEnum):
    """Ways in which a path can change."""

    NEW = "new"
    CHANGED = "changed"
    MODE = "mode"
    """The mode alone."""
    DELETED = "deleted"
    TYPE = "type"
    """A file became a link or a directory, for instance. What was in a directory, or is in it now, is stated, too."""


class Problem(StrEnum):
    """Reasons why a change cannot be applied as it is."""

    SPECIAL = "special"
    """It is a FIFO, a socket or a device."""
    NOT_TEXT = "not text"
    """Its name is not UTF-8; the path shows such bytes as `\\xff`."""
    TOO_LONG = "its path is too long"
    """It lies so deep that no program can name it by its path."""
    MASKED = "masked"
    """The program was not shown what the root may have there."""
    PROTECTED = "protected"
    """It belongs to git or to the engine; a directory is stated without what is in it."""
    MEANWHILE = "changed meanwhile"
    """The root's file changed after the program had started."""
    TOO_LARGE = "too large"
    """It was not read."""
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Entry:
    """One side of a change. Files have a SHA-256 unless there is a problem, links a target; sizes are in bytes."""

    type: Type
    mode: int
    size: int = 0
    sha256: str | None = None
    target: str | None = None
    mtime_ns: int = 0


@dataclass(frozen=True)
class Change:
    """A path that is not as the program found it. `before` is None for what is new, `after` for what is deleted."""

    path: str
    before: Entry | None
    after: Entry | None
    problem: Problem | None = None
    is_whole: bool = False
    """True for a deleted directory that stands for all that was in it: those files are too many to be stated."""

    @property
    def kind(self) -> Kind:
        """The way in which it changed."""
        if self.before is None:
            return Kind.NEW
        if self.after is None:
            return Kind.DELETED
        if self.before.type is not self.after.type:
            return Kind.TYPE
        same = self.before.sha256 == self.after.sha256 and self.before.target == self.after.target
        return Kind.MODE if same and self.problem is not Problem.TOO_LARGE else Kind.CHANGED


class Act(StrEnum):
    """Ways in which ignored output becomes part of a layer."""

    MOVE = "move"
    """It lies in the upper directory."""
    REMOVE = "remove"
    """It was deleted, and the layer alone had it."""
    HIDE = "hide"
    """It was deleted, and the root has it."""


@dataclass(frozen=True)
class Move:
    """Ignored output: a path (bytes that are no UTF-8 are surrogates), with all beneath it."""

    path: str
    act: Act


@dataclass(frozen=True)
class Changes:
    """Changes by a program, sorted by path, and its ignored output.

    `more` source changes were counted and not stated. `is_counted` is false if even counting was given up.
    `hard_links` are groups of changed paths that are one file.
    """

    changes: tuple[Change, ...] = ()
    moves: tuple[Move, ...] = ()
    more: int = 0
    is_counted: bool = True
    hard_links: tuple[tuple[str, ...], ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if every change is stated."""
        return self.is_counted and not self.more


@dataclass(frozen=True)
class Limits:
    """Bounds of what is read and stated."""

    changes: int = 10_000
    file_bytes: int = 64 << 20
    """Of one file."""
    bytes: int = 1 << 30
    """Of all files that are read, on both sides."""
    expanded: int = 5_000
    """Files of deleted directories; further deleted directories are stated as wholes."""
    entries: int = 1_000_000
    """Looked at."""


LIMITS = Limits()


def read_stamp(root: int) -> int:
    """The time in ns of the file system of an open root, later than that of every change before the call.

    It is the ctime of a file without a name, so that it comes from the clock that other changes there get theirs from.
    Where a file system has no such files, it is this machine's clock. Raises OSError.
    """
    first = _time_there(root)
    for _ in range(_TICKS):
        if (now := _time_there(root)) > first:
            return now
        time.sleep(_TICK_SECONDS)
    return first


def _time_there(root: int) -> int:
    try:
        descriptor = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=root)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
            raise
        return time.clock_gettime_ns(_COARSE)
    try:
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)


_COARSE = 5
"""CLOCK_REALTIME_COARSE of linux/time.h, from which ctimes are taken."""


def read_upper(
    up: str,
    lower: Sequence[str],
    *,
    start: int,
    ignored: IgnoredFiles,
    tracked: Collection[str] = (),
    of_root: int = 1,
    masks: Collection[str] = (),
    limits: Limits = LIMITS,
) -> Changes:
    """Changes by a program that saw `lower` (from the lowest to the highest) below `up`.

    The first `of_root` of `lower` make up the root. `start` is the `read_stamp` of the root before the program started.
    `tracked` are files that are never ignored. `masks` are those of `lower` whose whiteouts hide what the program may
    not see. Nothing else may use `up`. Raises OSError.
    """
    with ExitStack() as stack:

        def opened(path: str) -> int:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            return descriptor

        upper = stack.enter_context(Trail(opened(up), opens_all=True))
        lowers = [stack.enter_context(Trail(opened(path))) for path in lower]
        hiding = [trail for trail, path in zip(lowers, lower, strict=True) if path in masks]
        reader = _Reader(upper, lowers, of_root, hiding, start, ignored, tracked, limits)
        return reader.read()


def is_whiteout(status: os.stat_result) -> bool:
    """True for the entry that stands for something deleted."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(directory: int, name: str) -> bool:
    """True for a directory that hides the one below it. Links are not followed."""
    try:
        seen = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return False
    try:
        return os.getxattr(f"/proc/self/fd/{seen}", OPAQUE) == b"y"
    except OSError:
        return False
    finally:
        os.close(seen)


@dataclass(frozen=True)
class _Place:
    """A directory to read. `lowers` are the lower directories that it was seen in, the highest first.

    It is in the upper directory unless it `is_gone`. If it `is_opaque`, what is not in the upper directory is gone.
    """

    scope: Scope
    lowers: tuple[int, ...]
    is_gone: bool = False
    is_opaque: bool = False
    is_masked: bool = False
    gone: Change | None = None
    """The change to be stated before those in it."""


@dataclass(frozen=True)
class _Here:
    """A place with descriptors of its directories, which are open until the next place is."""

    place: _Place
    up: int | None
    below: Mapping[int, int]
    masks: Sequence[int]

    def hides(self, name: str) -> bool:
        """True if the program was not to see what the root has under this name."""
        return self.place.is_masked or any(_hides(mask, name) for mask in self.masks)

    def old(self, name: str, of: int | None = None) -> _Old | None:
        """The entry that the program found under a name, as overlayfs joins directories; or the first `of` of them."""
        first: _Old | None = None
        directories: list[int] = []
        for at, directory in self.below.items():
            if of is not None and at >= of:
                continue
            status = _status(directory, name)
            if status is None:
                continue
            if is_whiteout(status):
                break
            if not stat.S_ISDIR(status.st_mode):
                first = first or _Old(status, at)
                break
            first = first or _Old(status, at)
            directories.append(at)
            if is_opaque(directory, name):
                break
        return None if first is None else replace(first, directories=tuple(directories))


def _hides(mask: int, name: str) -> bool:
    status = _status(mask, name)
    return status is not None and (is_whiteout(status) or is_opaque(mask, name))


@dataclass(frozen=True)
class _Old:
    """An entry that was there: its status, the lower directory that shows it, and all that make up a directory."""

    status: os.stat_result
    at: int
    directories: tuple[int, ...] = ()

    @property
    def is_directory(self) -> bool:
        return bool(self.directories)


@dataclass
class _Reader:
    upper: Trail
    lowers: Sequence[Trail]
    of_root: int
    masks: Sequence[Trail]
    start: int
    ignored: IgnoredFiles
    tracked: Collection[str]
    limits: Limits
    changes: list[Change] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    more: int = 0
    looked: int = 0
    expanded: int = 0
    hashed: int = 0
    linked: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    waiting: list[_Place] = field(default_factory=list)

    def read(self) -> Changes:
        self.waiting = [_Place(self.ignored.top(), tuple(reversed(range(len(self.lowers)))))]
        while self.waiting and self.looked < self.limits.entries:
            place = self.waiting.pop()
            if place.is_gone:
                self._read_gone(place)
            else:
                self._read_directory(place)
        return Changes(
            tuple(sorted(self.changes, key=lambda change: change.path)),
            tuple(sorted(self.moves, key=lambda move: move.path)),
            self.more,
            is_counted=not self.waiting,
            hard_links=tuple(tuple(sorted(paths)) for paths in self.linked.values() if len(paths) > 1),
        )

    @cached_property
    def tracked_directories(self) -> frozenset[str]:
        """Directories that a tracked file is in."""
        found: set[str] = set()
        for path in self.tracked:
            above = path.rpartition("/")[0]
            while above and above not in found:
                found.add(above)
                above = above.rpartition("/")[0]
        return frozenset(found)

    def _read_directory(self, place: _Place) -> None:
        up = self.upper.open(place.scope.prefix)
        here = self._open(place, up)
        names = sorted(os.listdir(up))
        for name in names:
            self.looked += 1
            status, old = os.stat(name, dir_fd=up, follow_symlinks=False), here.old(name)
            is_directory = stat.S_ISDIR(status.st_mode)
            if is_whiteout(status):
                if old is not None:
                    self._delete(here, name, old)
            elif self._is_output(here, name, is_directory=is_directory):
                self.moves.append(Move(f"{place.scope.prefix}{name}", Act.MOVE))
                if old is not None and old.is_directory is not is_directory:
                    self._delete_source(here, name, old)
            elif is_directory:
                self._see_directory(here, name, status, old)
            else:
                self._see_file(here, name, status, old)
        if place.is_opaque:
            self._delete_all(here, without=names)

    def _read_gone(self, place: _Place) -> None:
        """State a deleted directory with all that was seen in it."""
        is_whole = self.expanded >= self.limits.expanded
        if place.gone is not None:
            self._state(replace(place.gone, is_whole=is_whole))
        if not is_whole:
            self._delete_all(self._open(place, None), without=())

    def _open(self, place: _Place, up: int | None) -> _Here:
        below = {}
        for at in place.lowers:
            with suppress(OSError):  # it is gone from the root
                below[at] = self.lowers[at].open(place.scope.prefix)
        masks = list[int]()
        for mask in self.masks:
            with suppress(OSError):
                masks.append(mask.open(place.scope.prefix))
        return _Here(place, up, below, masks)

    def _is_in_root(self, here: _Here, name: str) -> bool:
        """True if the root itself has something under this name."""
        return here.old(name, self.of_root) is not None

    def _is_output(self, here: _Here, name: str, *, is_directory: bool) -> bool:
        """True for an ignored file, and for an ignored directory without tracked files or other sources of the root."""
        scope = here.place.scope
        if name in PRUNED or not scope.ignores(name, is_directory=is_directory):
            return False
        path = f"{scope.prefix}{name}"
        if path in (self.tracked_directories if is_directory else self.tracked):
            return False
        return not self._is_in_root(here, name) or self.ignored.makes_output(path, is_directory=is_directory)

    def _see_directory(self, here: _Here, name: str, status: os.stat_result, old: _Old | None) -> None:
        problem = self._problem(here, name)
        after = Entry(Type.DIRECTORY, stat.S_IMODE(status.st_mode), mtime_ns=status.st_mtime_ns)
        before = None
        if old is not None:
            before, trouble = self._old_entry(here, name, old)
            problem = problem or trouble
        if before is None or before.type is not after.type or before.mode != after.mode or name in PRUNED:
            self._state(Change(here.place.scope.prefix + name, before, after, problem))
        if name not in PRUNED and here.up is not None:
            is_opaque_now = here.place.is_opaque or is_opaque(here.up, name)
            self._enter(here, name, old, is_opaque=is_opaque_now)

    def _enter(
        self,
        here: _Here,
        name: str,
        old: _Old | None,
        *,
        is_opaque: bool = False,
        is_gone: bool = False,
        gone: Change | None = None,
    ) -> None:
        scope = self.ignored.enter(here.place.scope, name)
        lowers = old.directories if old is not None else ()
        self.waiting.append(_Place(scope, lowers, is_gone, is_opaque, here.hides(name), gone))

    def _see_file(self, here: _Here, name: str, status: os.stat_result, old: _Old | None) -> None:
        """State a file, a link or something special, unless it is as it was."""
        path = here.place.scope.prefix + name
        if old is not None and old.is_directory:
            self._enter(here, name, old, is_gone=True)
        if self._is_full():
            return
        after, trouble = self._entry(here.up, name, status, opens_all=True)
        problem = self._problem(here, name) or trouble
        before = None
        if old is not None:
            before, trouble = self._old_entry(here, name, old)
            problem = problem or trouble
        if before is not None and _is_same(before, after):
            return
        if status.st_nlink > 1 and after.type is Type.FILE:
            self.linked.setdefault((status.st_dev, status.st_ino), []).append(_shown(path))
        self._state(Change(path, before, after, problem))

    def _delete(self, here: _Here, name: str, old: _Old) -> None:
        """State what was deleted, or have the layer do without it."""
        if self._is_output(here, name, is_directory=old.is_directory):
            act = Act.HIDE if self._is_in_root(here, name) else Act.REMOVE
            self.moves.append(Move(here.place.scope.prefix + name, act))
        else:
            self._state_deleted(here, name, old)

    def _delete_source(self, here: _Here, name: str, old: _Old) -> None:
        """State what was deleted, unless it was output."""
        if not self._is_output(here, name, is_directory=old.is_directory):
            self._state_deleted(here, name, old)

    def _state_deleted(self, here: _Here, name: str, old: _Old) -> None:
        if not old.is_directory and self._is_full():
            return
        before, trouble = self._old_entry(here, name, old)
        change = Change(here.place.scope.prefix + name, before, None, self._problem(here, name) or trouble)
        if old.is_directory and name not in PRUNED:
            self._enter(here, name, old, is_gone=True, gone=change)
        else:
            self._state(change)

    def _delete_all(self, here: _Here, without: Collection[str]) -> None:
        names: set[str] = set()
        for directory in here.below.values():
            with suppress(OSError):
                names.update(os.listdir(directory))
        for name in sorted(names.difference(without)):
            self.looked += 1
            self.expanded += 1
            if (old := here.old(name)) is not None:
                self._delete(here, name, old)

    def _is_full(self) -> bool:
        """True if another change is counted only; it is counted then, before anything is read of it."""
        is_full = len(self.changes) >= self.limits.changes
        self.more += is_full
        return is_full

    def _state(self, change: Change) -> None:
        if not self._is_full():
            if change.problem is Problem.MEANWHILE and change.before is not None:
                change = replace(change, before=replace(change.before, sha256=None, target=None))
            self.changes.append(replace(change, path=_shown(change.path)))

    def _problem(self, here: _Here, name: str) -> Problem | None:
        """Reason why no change of a name could be applied, whatever it is."""
        if not is_text(here.place.scope.prefix + name):
            return Problem.NOT_TEXT
        if len(os.fsencode(here.place.scope.prefix + name)) >= LONGEST_PATH:
            return Problem.TOO_LONG
        if name in PRUNED:
            return Problem.PROTECTED
        return Problem.MASKED if here.hides(name) else None

    def _old_entry(self, here: _Here, name: str, old: _Old) -> tuple[Entry, Problem | None]:
        """An entry as the program found it; without its content if that has changed since."""
        if old.is_directory:
            return Entry(Type.DIRECTORY, stat.S_IMODE(old.status.st_mode)), None
        entry, trouble = self._entry(here.below[old.at], name, old.status)
        if old.at < self.of_root and old.status.st_ctime_ns >= self.start:
            return entry, Problem.MEANWHILE
        return entry, trouble

    def _entry(
        self, directory: int | None, name: str, status: os.stat_result, *, opens_all: bool = False
    ) -> tuple[Entry, Problem | None]:
        """An entry with its content, and why that could not be read. Only regular files are opened."""
        assert directory is not None
        found = _type(status)
        entry = Entry(found, stat.S_IMODE(status.st_mode), mtime_ns=status.st_mtime_ns)
        if found is Type.LINK:
            try:
                return replace(entry, target=_shown(os.readlink(name, dir_fd=directory))), None
            except OSError:
                return entry, Problem.UNREADABLE
        if found is not Type.FILE:
            return entry, Problem.SPECIAL
        entry = replace(entry, size=status.st_size)
        if status.st_size > min(self.limits.file_bytes, self.limits.bytes - self.hashed):
            return entry, Problem.TOO_LARGE
        self.hashed += status.st_size
        sha256 = _sha256(directory, name, status, opens_all=opens_all)
        return replace(entry, sha256=sha256), None if sha256 else Problem.UNREADABLE


_TYPES = {
    stat.S_IFREG: Type.FILE,
    stat.S_IFLNK: Type.LINK,
    stat.S_IFDIR: Type.DIRECTORY,
    stat.S_IFIFO: Type.FIFO,
    stat.S_IFSOCK: Type.SOCKET,
}


def _type(status: os.stat_result) -> Type:
    return _TYPES.get(stat.S_IFMT(status.st_mode), Type.DEVICE)


def _is_same(before: Entry, after: Entry) -> bool:
    """True if two entries are certainly equal but for their times."""
    if before.type is Type.FILE and None in (before.sha256, after.sha256):
        return False
    return replace(before, mtime_ns=0) == replace(after, mtime_ns=0)


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None


def _sha256(directory: int, name: str, status: os.stat_result, *, opens_all: bool) -> str | None:
    """The SHA-256 of a regular file; None if it cannot be read, or is another file than the one of `status`."""
    try:
        descriptor = open_file(name, directory, opens_all=opens_all)
    except OSError:
        return None
    try:
        if not os.path.samestat(os.fstat(descriptor), status):
            return None
        digest, left = hashlib.sha256(), status.st_size
        while left and (piece := os.read(descriptor, min(left, _CHUNK))):
            digest.update(piece)
            left -= len(piece)
        return None if left or os.read(descriptor, 1) else digest.hexdigest()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _shown(path: str) -> str:
    r"""The path as text: bytes that are no UTF-8 become `\xff`."""
    return path if path.isascii() else os.fsencode(path).decode(errors="backslashreplace")
