"""Replace one file beneath the root atomically, alone on its directory (R20)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.database_files import OWN_FILES, refusal_of_own
from lcp_engine.sandbox.make_parents import open_parent, status_of, take_back
from lcp_engine.sandbox.paths import MAX_NAME
from lcp_engine.sandbox.read_text import read_bytes
from lcp_engine.sandbox.root import Root, not_a_file, refusal

_TRIES = 100
_TEMPORARY = re.compile(r"\.lcp-[0-9a-f]{32}\.tmp")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def temporary_name() -> str:
    """A random name for the file that is written before it takes its place."""
    return f".lcp-{secrets.token_hex(16)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file's name is one of `temporary_name`."""
    return name.startswith(".lcp-") and _TEMPORARY.fullmatch(name) is not None


@contextmanager
def locked(root: Root, path: str) -> Iterator[Target]:
    """The file at `path`, whose directory is locked for every other process and thread until the end.

    Missing parents are made, and removed again where the body raises before it has replaced anything. No link is
    followed. Raises `LcpError` before anything changes where the target cannot be a regular file.
    """
    held = lock(root, path, _wait_for)
    assert held is not None
    directory, made = held
    target = Target(path, directory, made)
    try:
        yield target
    except BaseException:
        give_up(root, target)
        raise
    finally:
        os.close(directory)  # and with it goes the lock


def lock(root: Root, path: str, takes: Callable[[int], bool]) -> tuple[int, tuple[str, ...]] | None:
    """The directory of the file at `path`, which the caller closes, and what was made for it, outermost first.

    `takes` is given the directory and locks it; None where it does not. Otherwise like `locked`.
    """
    parent, _, name = path.rpartition("/")
    _check_name(name, path)
    return _lock_parent(root, parent, name, path, takes)


def give_up(root: Root, target: Target) -> None:
    """Remove the directories that were made for a file which was not written then."""
    if not target.replaced:
        take_back(root, target.made)


@dataclass(frozen=True, slots=True)
class Glance:
    """A file as it was looked at; `data` is None where it is larger than was to be read."""

    sha256: str
    size: int
    data: bytes | None


def look_at(root: Root, path: str, cap: int | None) -> Glance | None:
    """What is at `path` now, without a lock and without making anything; refused like `locked` and `Target.read`.

    At most `cap` bytes are read into memory; the hash is that of the whole file.
    """
    parent, _, name = path.rpartition("/")
    _check_name(name, path)
    try:
        directory = root.open_directory(parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(error, path) from error
    try:
        target = Target(path, directory)
        seen = target.read(None) if cap is None else target.read_within(cap)
        if isinstance(seen, int):
            mark = target.mark()
            return None if mark is None else Glance(mark.sha256, seen, None)
        return None if seen is None else Glance(seen.sha256, len(seen.data), seen.data)
    finally:
        os.close(directory)


@dataclass(frozen=True, slots=True)
class Current:
    """A file as it is: its bytes, their SHA-256 in hex, its mode bits."""

    data: bytes
    sha256: str
    mode: int


class Mark(NamedTuple):
    """The SHA-256 of a file in hex, and its mode bits."""

    sha256: str
    mode: int


class Target:
    """A file in a directory that is locked. `made` are the parents that were made for it, outermost first.

    Of a file in a batch they are those that were made for any file of the batch.
    """

    def __init__(self, path: str, directory: int, made: tuple[str, ...] = ()) -> None:
        self.path = path
        self.made = made
        self.replaced = False
        self._name = path.rpartition("/")[2]
        self._directory = directory

    def read(self, cap: int | None) -> Current | None:
        """What is there, None where nothing is. Raises `LcpError`: TOO_LARGE above `cap` bytes, NOT_A_FILE."""
        with self._opened() as opened:
            if opened is None:
                return None
            descriptor, status = opened
            return _current(read_bytes(descriptor, status.st_size, cap, self.path), status)

    def read_within(self, most: int) -> Current | int | None:
        """Like `read`, but how many bytes are there where these are more than `most`."""
        with self._opened() as opened:
            if opened is None:
                return None
            descriptor, status = opened
            if status.st_size > most:
                return status.st_size
            return _current(read_bytes(descriptor, status.st_size, None, self.path), status)

    def mark(self) -> Mark | None:
        """Like `read`, without what is in the file: one of any size is told from others in little memory."""
        with self._opened() as opened:
            if opened is None:
                return None
            descriptor, status = opened
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return Mark(hashlib.file_digest(file, "sha256").hexdigest(), stat.S_IMODE(status.st_mode))

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, os.stat_result] | None]:
        try:
            if OWN_FILES.inodes and (before := status_of(self._directory, self._name)) is not None:
                OWN_FILES.refuse(before, self.path)
            descriptor = os.open(self._name, _READ, dir_fd=self._directory)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise refusal(error, self.path) from error
        status = os.fstat(descriptor)
        if OWN_FILES.holds(descriptor, status):
            raise refusal_of_own(self.path)
        try:
            if not stat.S_ISREG(status.st_mode):
                raise not_a_file(self.path, status.st_mode)
            yield descriptor, status
        except OSError as error:
            raise refusal(error, self.path) from error
        finally:
            os.close(descriptor)

    def replace(self, data: bytes, temporary: str, mode: int | None = None) -> None:
        """Makes `data` the whole file, at once and durably: `put`, then `sync`."""
        self.put(data, temporary, mode)
        self.sync()

    def put(self, data: bytes, temporary: str, mode: int | None = None) -> None:
        """Makes `data` the whole file, at once; durably so after `sync`. `temporary` is the name it has on the way.

        Mode bits stay, and the owner where the system lets them; a new file gets the bits `mode`, or else those that
        the system gives. Whatever fails, the file is as it was.
        """
        try:
            before = status_of(self._directory, self._name)
            if before is not None and not stat.S_ISREG(before.st_mode):
                raise not_a_file(self.path, before.st_mode)
            try:
                self._write(temporary, data, before, mode)
                os.rename(temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            except BaseException:
                self.discard(temporary)
                raise
            self.replaced = True
        except OSError as error:
            raise refusal(error, self.path) from error

    def sync(self) -> None:
        """Makes durable what `put`, or an interrupted `remove`, did to the directory. Raises `FILE_SYSTEM`."""
        try:
            os.fsync(self._directory)
        except OSError as error:
            raise refusal(error, self.path) from error

    def remove(self) -> None:
        """Takes the file away durably; nothing happens where it is not there."""
        try:
            _unlink(self._directory, self._name)
            os.fsync(self._directory)
        except OSError as error:
            raise refusal(error, self.path) from error

    def discard(self, temporary: str) -> None:
        """Takes away what an interrupted `replace` may have left."""
        if not is_temporary(temporary):
            raise ValueError(f"{temporary!r} is not a name of temporary_name()")
        _unlink(self._directory, temporary)

    def _write(self, temporary: str, data: bytes, before: os.stat_result | None, mode: int | None) -> None:
        # Until it has the mode of the file it replaces, nobody else may read it.
        descriptor = os.open(temporary, _CREATE, 0o666 if before is None else 0o600, dir_fd=self._directory)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if before is not None:
                _keep_owner_and_mode(descriptor, before)
            elif mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _current(data: bytes, status: os.stat_result) -> Current:
    return Current(data, hashlib.sha256(data).hexdigest(), stat.S_IMODE(status.st_mode))


def _keep_owner_and_mode(descriptor: int, before: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):  # only root may give files away; the mode matters more
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _check_name(name: str, path: str) -> None:
    if name in ("", ".", ".."):
        raise LcpError(ErrorCode.NOT_A_FILE, f"{path!r} is a directory, not a regular file")
    if "\0" in path or len(os.fsencode(name)) > MAX_NAME:
        raise LcpError(
            ErrorCode.INVALID_PARAMS, f"path {path[:60]!r} holds a NUL or a name above {MAX_NAME} bytes"
        )


def _lock_parent(
    root: Root, parent: str, name: str, path: str, takes: Callable[[int], bool]
) -> tuple[int, tuple[str, ...]] | None:
    """The parent directory, made where it is missing, locked, and still the one that its path names."""
    made: tuple[str, ...] = ()
    try:
        for _ in range(_TRIES):
            descriptor, new = open_parent(root, parent, name, path)
            made += tuple(directory for directory in new if directory not in made)
            try:
                _check_target(descriptor, name, path)
                if not takes(descriptor):
                    os.close(descriptor)
                    take_back(root, made)
                    return None
                if is_at(root, parent, descriptor):
                    return descriptor, made
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
    except BaseException as error:
        take_back(root, made)
        if isinstance(error, OSError):
            raise refusal(error, path) from error
        raise
    raise LcpError(
        ErrorCode.FILE_SYSTEM, f"{path!r}: its directory was moved or replaced {_TRIES} times meanwhile"
    )


def _wait_for(directory: int) -> bool:
    fcntl.flock(directory, fcntl.LOCK_EX)
    return True


def _check_target(directory: int, name: str, path: str) -> None:
    status = status_of(directory, name)
    if status is None or stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISLNK(status.st_mode):
        raise LcpError(ErrorCode.PATH_DENIED, f"{path!r} is a symbolic link, which is not written through")
    raise not_a_file(path, status.st_mode)


def is_at(root: Root, parent: str, descriptor: int) -> bool:
    """Whether the locked directory is what its path names: it may have been removed while the lock was waited for."""
    try:
        named = root.open_directory(parent)
    except FileNotFoundError:
        return False
    try:
        return os.path.samestat(os.fstat(named), os.fstat(descriptor))
    finally:
        os.close(named)


def _unlink(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
