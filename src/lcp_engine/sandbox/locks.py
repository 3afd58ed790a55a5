"""Lock the directories of files, so that what is found of the files stays true until they are written (R20).

A lock is a `flock` on the directory itself: it binds every process of the host, dies with its holder, and no forked
child inherits it. Two callers never wait for each other: one that may wait for several locks takes them in the order of
device and inode numbers, and any other waits only while it holds none.
"""

from __future__ import annotations

import fcntl
import math
import os
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from lcp_engine.clock import Micros
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import (
    LockedFile,
    Run,
    check_name,
    run_here,
    split,
)
from lcp_engine.sandbox.directories import is_at, open_parent, remove_made, status_of
from lcp_engine.sandbox.entries import check_directory, local
from lcp_engine.sandbox.root import Root, not_a_file, refusal
from lcp_engine.sandbox.system.kept_descriptors import keep_from_children, unlock_and_close

RootedPath: TypeAlias = tuple[Root, str]
"""A root, and the path of a file beneath it."""

Held: TypeAlias = LockedFile | LcpError | None
"""A locked file, or why it is refused, or None if its lock must be taken later."""

MOST_DIRECTORIES = 32
"""Locked directories of a batch; each keeps a descriptor open."""

SHORTLY_SECONDS = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.01
"""Between two attempts to lock, in seconds."""
_TRIES = 100


class Wait(Enum):
    """Which locks a caller waits for."""

    FIRST = "first"
    """The first; files whose directory is busy are left for later. Creates missing parents."""
    SHORTLY = "shortly"
    """Like `FIRST`, for at most `SHORTLY_SECONDS`: then every file may be left for later."""
    ALL = "all"
    """Every one."""
    NONE = "none"
    """None: unless all directories are free, every file is left for later."""


class Put(NamedTuple):
    """New content for a file of a batch, None to remove it; the rest is as in `put`."""

    file: LockedFile
    data: bytes | None
    temporary: str
    until: Micros | None = None
    mode: int | None = None


class LockedFiles(Protocol):
    """Files that are locked together; `found` has one `Held` for each path, in their order."""

    @property
    def found(self) -> Sequence[Held]: ...
    def put(self, puts: Sequence[Put], starts: Callable[[int], object]) -> list[LcpError | None]:
        """Replace files durably; for each, why it failed. A file that failed may still have been `replaced`.

        `starts` is called with the index of each file before it is written.
        """


def only(files: LockedFiles) -> LockedFile:
    """The one file that was locked. Raises its refusal."""
    (file,) = each(files)
    return file


def each(files: LockedFiles) -> list[LockedFile]:
    """The files, all of which were locked. Raises the first refusal."""
    refused = next((held for held in files.found if isinstance(held, LcpError)), None)
    if refused is not None:
        raise refused
    return [held for held in files.found if isinstance(held, LockedFile)]


@contextmanager
def lock(
    files: Sequence[RootedPath], wait: Wait = Wait.FIRST, *, together: int = 1, run: Run = run_here
) -> Iterator[LockedFiles]:
    """The files, with their directories locked until the context ends; every step on them is called with `run`.

    No link is followed, and a refusal comes before anything is changed. The first `together` files change together:
    `Wait.FIRST` and `Wait.SHORTLY` wait for the locks of all of them, and they may have similar paths. With these two
    missing parents are created, and removed at the end if no file was written into them; files are also left for later
    beyond `MOST_DIRECTORIES` directories, and if their path may be the same as an earlier one, or above or beneath one.
    Otherwise nothing is created, and a directory that cannot be opened is the refusal of its files. Raises
    `FILE_SYSTEM` if the file system refuses to wait for a lock.
    """
    locked = _LocalFiles(run)
    try:
        run(partial(locked.acquire, files, wait, together))
        yield locked
    finally:
        run(locked.release)


_Key: TypeAlias = tuple[str, str]
"""The path of a root, and that of a directory beneath it."""


class _LocalFiles:
    def __init__(self, run: Run) -> None:
        self.found: list[Held] = []
        self._run = run
        self._directories: dict[_Key, int | LcpError] = {}
        self._made: list[tuple[Root, str]] = []
        self._writable: list[tuple[Root, LockedFile]] = []
        self._waits_until = 0.0
        self._seen: set[str] = set()
        self._above: set[str] = set()

    def acquire(self, files: Sequence[RootedPath], wait: Wait, together: int) -> None:
        self.found = [None] * len(files)
        if wait in (Wait.FIRST, Wait.SHORTLY):
            self._waits_until = math.inf if wait is Wait.FIRST else time.monotonic() + SHORTLY_SECONDS
            if together > 1 and not self._lock_together(files[:together]):
                return
            is_alone = len(files) == 1
            for nth, (root, path) in enumerate(files):
                if is_alone or self._is_distinct(f"{root.path}/{path}") or nth < together:
                    self.found[nth] = self._add(root, path)
        elif self._lock_existing(files, wait):
            self.found = [self._existing(root, path) for root, path in files]

    def put(self, puts: Sequence[Put], starts: Callable[[int], object]) -> list[LcpError | None]:
        errors: list[LcpError | None] = []
        for nth, put in enumerate(puts):
            starts(nth)
            try:
                put.file.bring_to(put.data, put.temporary, put.mode, until=put.until)
                errors.append(None)
            except LcpError as error:
                errors.append(error.with_traceback(None))  # which would know `errors`, and the open root
        try:
            self._sync(puts, starts)
        except LcpError as error:
            return [error if put.file.replaced else before for put, before in zip(puts, errors, strict=True)]
        return errors

    def release(self) -> None:
        self._remove_unused()
        self._close()
        self.found = []  # the traceback of a refusal knows this, and the open root

    def _remove_unused(self) -> None:
        """Remove the directories that were created for files that were not written, the innermost first."""
        written = [(root, file.path) for root, file in self._writable if file.replaced]
        for root, made in reversed(self._made):
            if not any(root is other and path.startswith(f"{made}/") for other, path in written):
                remove_made(root, [made])
        self._made.clear()

    def _close(self) -> None:
        for descriptor in self._directories.values():
            if isinstance(descriptor, int):
                unlock_and_close(descriptor)
        self._directories.clear()

    def _sync(self, puts: Sequence[Put], starts: Callable[[int], object]) -> None:
        """Once for each directory, however many of its files were replaced."""
        replaced = {_key(root, file.path): file for root, file in self._writable if file.replaced}
        indexes = {id(put.file): nth for nth, put in enumerate(puts)}
        for file in replaced.values():
            starts(indexes.get(id(file), 0))
            file.sync()

    # -- Wait.FIRST and Wait.SHORTLY

    def _lock_together(self, files: Sequence[RootedPath]) -> bool:
        """Lock the directories of some files, in order. False if that takes too long.

        If one is refused, none is locked yet: who adds them meets the refusal.
        """
        for _ in range(_TRIES):
            try:
                self._open_parents(files)
            except (LcpError, OSError):
                self._close()
                return True
            try:
                if not self._flock_in_order(self._waits_until):
                    return False
                if all(self._is_current(root, path) for root, path in files):
                    return True
            except OSError as error:
                raise refusal(error, files[0][1]) from error
            self._close()
        return False

    def _open_parents(self, files: Sequence[RootedPath]) -> None:
        for _, path in files:
            check_name(split(path)[1], path)
        for root, path in files:
            key = _key(root, path)
            if key not in self._directories:
                descriptor, new = open_parent(root, key[1], path)
                self._directories[key] = keep_from_children(descriptor)
                self._made += ((root, directory) for directory in new)

    def _add(self, root: Root, path: str) -> Held:
        try:
            return self._lock_to_write(root, path)
        except LcpError as error:
            return error

    def _is_distinct(self, path: str) -> bool:
        """True if a file is none of those before it, is beneath none, and none is beneath it."""
        # A file system may take these for the same.
        alike = unicodedata.normalize("NFKC", path.removesuffix("/")).casefold()
        above = {alike[:at] for at, character in enumerate(alike) if character == "/"}
        is_distinct = self._seen.isdisjoint({alike, *above}) and alike not in self._above
        self._seen.add(alike)
        self._above |= above
        return is_distinct

    def _lock_to_write(self, root: Root, path: str) -> LockedFile | None:
        check_name(split(path)[1], path)
        key = _key(root, path)
        if key not in self._directories and len(self._directories) == MOST_DIRECTORIES:
            return None
        descriptor = self._lock_parent(root, key, path)
        if descriptor is None:
            return None
        known = self._directories.setdefault(key, descriptor)
        if known != descriptor:
            unlock_and_close(descriptor)
        assert isinstance(known, int)
        made = tuple(one for where, one in self._made if where is root and path.startswith(f"{one}/"))
        file = local(path, known, made, self._run)
        self._writable.append((root, file))
        return file

    def _lock_parent(self, root: Root, key: _Key, path: str) -> int | None:
        """The parent directory: created if missing, locked, and still the one that its path names; None if busy."""
        made: list[str] = []
        try:
            for _ in range(_TRIES):
                descriptor, new = open_parent(root, key[1], path)
                keep_from_children(descriptor)
                made += (directory for directory in new if directory not in made)
                try:
                    _check_target(descriptor, path)
                    if not self._takes(descriptor, key):
                        unlock_and_close(descriptor)
                        remove_made(root, made)
                        return None
                    if is_at(root, key[1], descriptor):
                        self._made += ((root, directory) for directory in made)
                        return descriptor
                except BaseException:  # also an interrupt: the descriptor would stay open
                    unlock_and_close(descriptor)
                    raise
                unlock_and_close(descriptor)
        except BaseException as error:  # also an interrupt: the new directories would remain
            remove_made(root, made)
            if isinstance(error, OSError):
                raise refusal(error, path) from error
            raise
        raise LcpError(
            ErrorCode.FILE_SYSTEM,
            f"{path!r}: its directory was moved or replaced {_TRIES} times meanwhile",
            advice=GENERAL,
        )

    def _takes(self, descriptor: int, key: _Key) -> bool:
        held = self._directories.get(key)
        if isinstance(held, int):  # unless another directory has replaced it
            return os.path.samestat(os.fstat(descriptor), os.fstat(held))
        return _flock_until(descriptor, 0.0 if self._directories else self._waits_until)

    # -- Wait.ALL and Wait.NONE

    def _lock_existing(self, files: Sequence[RootedPath], wait: Wait) -> bool:
        """Lock all directories that exist; whether that succeeded. Raises `LcpError`."""
        for _ in range(_TRIES if wait is Wait.ALL else 1):
            for root, path in files:
                if _key(root, path) not in self._directories:
                    self._directories[_key(root, path)] = _open_directory(root, path)
            try:
                if self._flock_in_order(math.inf if wait is Wait.ALL else 0.0) and all(
                    self._is_current(root, path) for root, path in files
                ):
                    return True
            except OSError as error:
                if wait is Wait.ALL:
                    raise refusal(error, ".") from error
            self._close()
        if wait is Wait.NONE:
            return False
        raise LcpError(
            ErrorCode.FILE_SYSTEM,
            f"{len(files)} directories were moved or replaced {_TRIES} times meanwhile",
            advice=GENERAL,
        )

    def _flock_in_order(self, end: float) -> bool:
        """Lock the directories that are open, waiting until `end` (monotonic) at most; whether that succeeded."""
        inodes: dict[tuple[int, int], int] = {}
        for descriptor in self._directories.values():
            if isinstance(descriptor, int):
                status = os.fstat(descriptor)
                # Two paths may lead to one directory (roots may overlap); a second lock would wait for the first.
                inodes.setdefault((status.st_dev, status.st_ino), descriptor)
        return all(_flock_until(descriptor, end) for _, descriptor in sorted(inodes.items()))

    def _is_current(self, root: Root, path: str) -> bool:
        """True if what was opened before the lock was held is still what the path names."""
        key = _key(root, path)
        found = self._directories[key]
        try:
            if isinstance(found, int):
                return is_at(root, key[1], found)
            os.close(root.open_directory(key[1]))
        except OSError:
            return not isinstance(found, int)
        return False

    def _existing(self, root: Root, path: str) -> Held:
        found = self._directories[_key(root, path)]
        return found if isinstance(found, LcpError) else local(path, found, run=self._run)


def _flock_until(descriptor: int, end: float) -> bool:
    """Lock a directory, waiting until `end` (monotonic) at most; whether that succeeded."""
    if end == math.inf:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    pause = _FIRST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return True


def _open_directory(root: Root, path: str) -> int | LcpError:
    try:
        return keep_from_children(root.open_directory(split(path)[0]))
    except OSError as error:
        return refusal(error, path)


def _check_target(directory: int, path: str) -> None:
    status = status_of(directory, split(path)[1])
    if status is None or (stat.S_ISREG(status.st_mode) and not path.endswith("/")):
        return
    if stat.S_ISLNK(status.st_mode):
        raise LcpError(
            ErrorCode.PATH_DENIED,
            f"{path!r} is a symbolic link, which is not written through",
            advice="Name the file that the link leads to, if it is beneath the root.",
        )
    if not path.endswith("/"):
        raise not_a_file(path, status.st_mode)
    check_directory(path, status.st_mode)


def _key(root: Root, path: str) -> _Key:
    return root.path, split(path)[0]
