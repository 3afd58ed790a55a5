"""Read, replace and remove one file whose directory is locked, atomically and durably (R20)."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from lcp_engine.clock import Micros, since_start
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.directories import give_to_owner, status_of
from lcp_engine.sandbox.paths import MAX_NAME
from lcp_engine.sandbox.reading.read_text import read_bytes
from lcp_engine.sandbox.root import not_a_file, refusal
from lcp_engine.sandbox.system import syscalls
from lcp_engine.sandbox.system.database_files import OWN_FILES, refusal_of_own

_TEMPORARY = re.compile(r"\.lcp-[0-9a-f]{32}\.tmp")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_UNFINISHED = 0o200
"""The mode of a temporary file that is not yet written in full, if it is to replace another one."""

_TRIES = 100


def temporary_name() -> str:
    """A random name for a file that is written in full before it is renamed into place."""
    return f".lcp-{secrets.token_hex(16)}.tmp"


def is_temporary(name: str) -> bool:
    """True if `temporary_name` made this name."""
    return name.startswith(".lcp-") and _TEMPORARY.fullmatch(name) is not None


T = TypeVar("T")
P = ParamSpec("P")


class Run(Protocol):
    """Calls `work` in some thread, and returns or raises what it does."""

    def __call__(self, work: Callable[[], T], /) -> T: ...


def run_here(work: Callable[[], T], /) -> T:
    """Calls `work` in this thread."""
    return work()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A file read without a lock, with its mode bits; `data` is None if it is larger than the cap it was read with."""

    sha256: str
    size: int
    data: bytes | None
    mode: int


@dataclass(frozen=True, slots=True)
class Current:
    """A file under its lock: its bytes, their SHA-256 in hex, its mode bits."""

    data: bytes
    sha256: str
    mode: int


class _Look(NamedTuple):
    """File that was found under the lock: the hash and the status of a file, both None if there was none."""

    sha256: str | None
    status: os.stat_result | None

    def is_of(self, now: os.stat_result | None) -> bool:
        """True if a status is certainly that of the same content."""
        if self.status is None or now is None:
            return self.status is now
        return _mark(self.status) == _mark(now)


def _mark(status: os.stat_result) -> tuple[int, ...]:
    return *_moved_mark(status), status.st_ctime_ns


def _moved_mark(status: os.stat_result | None) -> tuple[int, ...]:
    """Part of the mark of a file that a rename keeps."""
    return () if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Digest(NamedTuple):
    """The SHA-256 of a file in hex, and its mode bits."""

    sha256: str
    mode: int


class LockedFile(ABC):
    """A file whose directory is locked.

    `made` are the parent directories that were created for it, outermost first; in a batch, those that were created for
    any file of the batch. `replaced` is true once `put` has renamed new content into place.
    """

    def __init__(self, path: str, made: tuple[str, ...] = ()) -> None:
        self.path = path
        self.made = made
        self.replaced = False

    @abstractmethod
    def read(self, cap: int | None) -> Current | None:
        """The file, None if there is none. Raises `LcpError`: TOO_LARGE above `cap` bytes, NOT_A_FILE."""

    @abstractmethod
    def read_within(self, most: int) -> Current | int | None:
        """Like `read`, but only the size of a file that has more than `most` bytes."""

    @abstractmethod
    def digest(self) -> Digest | None:
        """Like `read`, without the content: a file of any size needs little memory."""

    def replace(self, data: bytes | None, temporary: str, mode: int | None = None) -> None:
        """Replace the file atomically and durably, or remove it: `bring_to`, then `sync`."""
        self.bring_to(data, temporary, mode)
        if data is not None:
            self.sync()

    def bring_to(
        self, data: bytes | None, temporary: str, mode: int | None = None, *, until: Micros | None = None
    ) -> None:
        """`put` this content, or `remove` the file for None."""
        if data is None:
            self.remove(temporary, until=until)
        else:
            self.put(data, temporary, mode, until=until)

    @abstractmethod
    def put(
        self, data: bytes, temporary: str, mode: int | None = None, *, until: Micros | None = None
    ) -> None:
        """Replace the file atomically; durable only after `sync`. `temporary` is the name it is written under first.

        Raises `TIMEOUT` if `until`, in `clock.since_start()`, has passed before the file is replaced: the caller may
        have been suspended, and should look again whether the change is still wanted.

        Keeps the mode bits, and the owner if the system permits; a new file gets the bits `mode`, or else the system's
        default. If it fails, the file is unchanged. Raises `CONFLICT` if the content is not what was read under this
        lock, since other programs take no locks: what they wrote has the name then.
        """

    def prepare(self, data: bytes, temporary: str, mode: int | None = None) -> bool:
        """Write what `put` is to put in place, durably and beside the file; `mend` removes it. Raises like `put`.

        False where nothing can be written beforehand.
        """
        return False

    def is_prepared(self, temporary: str, after: str) -> bool:
        """True if `prepare` has written the content of hash `after`, perhaps in another process."""
        return False

    def put_prepared(self, temporary: str, before: str | None, after: str) -> bool:
        """Like `put`, of what `prepare` has written, in place of what has hash `before`.

        False, and nothing is changed, if it is not there or the file is another one by now.
        """
        return False

    def set_mode(self, before: int, after: int) -> bool:
        """Give a file with the mode bits `before` those of `after`, durably. False if it has neither, or is no file."""
        return False

    @abstractmethod
    def sync(self) -> None:
        """Make durable what `put`, or an interrupted `remove`, did to the directory. Raises `FILE_SYSTEM`."""

    @abstractmethod
    def check_removable(self) -> None:
        """Raises `PATH_DENIED` if its directory may not be changed."""

    @abstractmethod
    def remove(self, temporary: str, *, until: Micros | None = None) -> None:
        """Remove the file durably, if there is one, as `temporary`. Raises `CONFLICT` and `TIMEOUT` like `put`."""

    @abstractmethod
    def mend(self, temporary: str, before: str | None, after: str | None) -> None:
        """Clear up after an interrupted `put` or `remove` that was to bring the file from hash `before` to `after`.

        What another program wrote, and the interrupted step had moved to `temporary`, gets its name back; it stays
        where it is if that program, or another one, has written the file again since.
        """


class Local(LockedFile):
    """A file in a `directory` that this process has locked; every step is called with `run`."""

    def __init__(self, path: str, directory: int, made: tuple[str, ...] = (), run: Run = run_here) -> None:
        super().__init__(path, made)
        self.run = run
        self._name = split(path)[1]
        self._directory = directory

    def _check_time(self, until: Micros | None) -> None:
        if until is not None and since_start() > until:
            raise LcpError(ErrorCode.TIMEOUT, f"{self.path!r} was not written in time")


S = TypeVar("S", bound=Local)


def step(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Have a method run where the file's `run` calls it."""

    @wraps(method)
    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.run is run_here:  # a quick way for what is called most
            return method(self, *args, **kwargs)
        return self.run(partial(method, self, *args, **kwargs))

    return called


class LocalFile(Local):
    """A regular file."""

    def __init__(self, path: str, directory: int, made: tuple[str, ...] = (), run: Run = run_here) -> None:
        super().__init__(path, directory, made, run)
        self._look: _Look | None = None

    @step
    def read(self, cap: int | None) -> Current | None:
        with self._opened(self._name) as opened:
            if opened is None:
                self._note(None, None)
                return None
            descriptor, status = opened
            return self._noted(read_bytes(descriptor, status.st_size, cap, self.path), status)

    @step
    def read_within(self, most: int) -> Current | int | None:
        with self._opened(self._name) as opened:
            if opened is None:
                self._note(None, None)
                return None
            descriptor, status = opened
            if status.st_size > most:
                return status.st_size
            return self._noted(read_bytes(descriptor, status.st_size, None, self.path), status)

    @step
    def digest(self) -> Digest | None:
        return self._digest()

    def _digest(self) -> Digest | None:
        with self._opened(self._name) as opened:
            if opened is None:
                self._note(None, None)
                return None
            descriptor, status = opened
            sha = _sha256_of(descriptor)
            self._note(sha, status)
            return Digest(sha, stat.S_IMODE(status.st_mode))

    def _noted(self, data: bytes, status: os.stat_result) -> Current:
        current = Current(data, hashlib.sha256(data).hexdigest(), stat.S_IMODE(status.st_mode))
        self._note(current.sha256, status)
        return current

    def _note(self, sha: str | None, status: os.stat_result | None) -> None:
        # The first look counts: a later one may see what another program has written since.
        if self._look is None:
            self._look = _Look(sha, status)

    def _check_unchanged(self) -> None:
        """Raises `CONFLICT` if another program has changed the content since the first look at it."""
        look = self._look
        if look is None or look.is_of(status_of(self._directory, self._name)):
            return
        self._look = None
        digest = self._digest()
        if (None if digest is None else digest.sha256) != look.sha256:
            raise self._conflict()

    def _conflict(self) -> LcpError:
        message = f"{self.path!r} was changed by another program while it was about to be written"
        return LcpError(ErrorCode.CONFLICT, message, advice=GENERAL)

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, os.stat_result] | None]:
        try:
            if OWN_FILES.inodes and (before := status_of(self._directory, name)) is not None:
                OWN_FILES.refuse(before, self.path)
            descriptor = os.open(name, _READ, dir_fd=self._directory)
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

    @step
    def put(
        self, data: bytes, temporary: str, mode: int | None = None, *, until: Micros | None = None
    ) -> None:
        try:
            before = status_of(self._directory, self._name)
            if before is not None and not stat.S_ISREG(before.st_mode):
                raise not_a_file(self.path, before.st_mode)
            if self._look is None:
                self._digest()
            written = self._write(temporary, data, before, mode)
            try:
                self._check_unchanged()
                self._check_time(until)
                self._move_in(temporary, written)
            except BaseException:  # also an interrupt: the temporary file would remain
                self._discard(temporary, written)
                raise
            self._look = None
        except OSError as error:
            raise refusal(error, self.path) from error

    @step
    def prepare(self, data: bytes, temporary: str, mode: int | None = None) -> bool:
        try:
            before = status_of(self._directory, self._name)
            if before is not None and not stat.S_ISREG(before.st_mode):
                raise not_a_file(self.path, before.st_mode)
            self._write(temporary, data, before, mode)
        except OSError as error:
            raise refusal(error, self.path) from error
        return True

    @step
    def is_prepared(self, temporary: str, after: str) -> bool:
        try:
            with self._opened(temporary) as opened:
                if opened is None or not _is_written(opened[1]) or _sha256_of(opened[0]) != after:
                    return False
                os.fsync(opened[0])  # the process that wrote it may have died before it did that
                return True
        except LcpError:
            return False

    @step
    def put_prepared(self, temporary: str, before: str | None, after: str) -> bool:
        try:
            written, now = status_of(self._directory, temporary), status_of(self._directory, self._name)
            if written is None or not _is_written(written) or self._sha256(temporary) != after:
                return False
            if now is not None and stat.S_IMODE(now.st_mode) != stat.S_IMODE(written.st_mode):
                return False
            digest = self._digest()
            if (None if digest is None else digest.sha256) != before:
                return False
            try:
                self._move_in(temporary, written)
            except BaseException:  # also an interrupt: the temporary file would remain
                self._discard(temporary, written)
                raise
            self._look = None
        except OSError as error:
            raise refusal(error, self.path) from error
        return True

    @step
    def set_mode(self, before: int, after: int) -> bool:
        with self._opened(self._name) as opened:
            if opened is None or stat.S_IMODE(opened[1].st_mode) not in (before, after):
                return False
            os.fchmod(opened[0], after)
            os.fsync(opened[0])
            return True

    @step
    def sync(self) -> None:
        sync_directory(self._directory, self.path)

    @step
    def check_removable(self) -> None:
        check_writable(self._directory, self.path)

    @step
    def remove(self, temporary: str, *, until: Micros | None = None) -> None:
        try:
            if self._look is None:
                self._digest()
            self._check_unchanged()
            self._check_time(until)
            with suppress(FileNotFoundError):
                syscalls.move(self._directory, self._name, temporary)
                self._check_moved_out(temporary)
                self.replaced = True
                _unlink(self._directory, temporary)
            self._look = None
            os.fsync(self._directory)
        except OSError as error:
            raise refusal(error, self.path) from error

    @step
    def mend(self, temporary: str, before: str | None, after: str | None) -> None:
        if not is_temporary(temporary):
            raise ValueError(f"{temporary!r} is not a name of temporary_name()")
        try:
            left = status_of(self._directory, temporary)
            if left is None:
                return
            # Where there was no file, nothing can have been moved out.
            is_unfinished = before is None or stat.S_IMODE(left.st_mode) == _UNFINISHED
            if is_unfinished or self._sha256(temporary) in {before, after} - {None}:
                _unlink(self._directory, temporary)
            elif after is None:
                self._move_back(temporary)
            elif self._sha256(self._name) == after:
                written = status_of(self._directory, self._name)
                self._put_back(temporary, written)
                self._discard(temporary, written)
        except OSError as error:
            raise refusal(error, self.path) from error

    def _write(
        self, temporary: str, data: bytes, before: os.stat_result | None, mode: int | None
    ) -> os.stat_result:
        # Until it has the mode of the file it replaces, or the one that is given, nobody may read it.
        permissions = 0o666 if before is None and mode is None else _UNFINISHED
        descriptor = os.open(temporary, _CREATE, permissions, dir_fd=self._directory)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if before is not None:
                _keep_owner_and_mode(descriptor, before)
            else:
                give_to_owner(descriptor, self._directory)
                if mode is not None:
                    os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            return os.fstat(descriptor)
        except BaseException:  # also an interrupt: the temporary file would remain
            _unlink(self._directory, temporary)
            raise
        finally:
            os.close(descriptor)

    # -- between the last look and the rename another program may write, too

    def _move_in(self, temporary: str, written: os.stat_result) -> None:
        """Give the name to what was `written`. Raises `CONFLICT` if the name had another content than was looked at."""
        assert self._look is not None
        if self._look.status is None:
            try:
                syscalls.move(self._directory, temporary, self._name)
            except FileExistsError:
                raise self._conflict() from None
            self.replaced = True
            return
        try:
            is_exchanged = syscalls.exchange(self._directory, temporary, self._name)
        except FileNotFoundError:
            raise self._conflict() from None
        if not is_exchanged:  # this file system can only replace
            os.rename(temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            self.replaced = True
            return
        self.replaced = True
        if not self._is_as_seen(temporary):
            self._put_back(temporary, written)
            self.replaced = False
            raise self._conflict()
        _unlink(self._directory, temporary)

    def _check_moved_out(self, temporary: str) -> None:
        """Raises `CONFLICT` if not the content that was looked at was renamed to `temporary`: it is put back."""
        if not self._is_as_seen(temporary):
            self._move_back(temporary)
            raise self._conflict()

    def _is_as_seen(self, name: str) -> bool:
        assert self._look is not None
        if _moved_mark(status_of(self._directory, name)) == _moved_mark(self._look.status):
            return True
        return self._sha256(name) == self._look.sha256

    def _put_back(self, temporary: str, written: os.stat_result | None) -> None:
        """Exchange again. If what comes out is not what was put in, it is newer, and gets the name in its turn."""
        inside = written
        for _ in range(_TRIES):
            entering = status_of(self._directory, temporary)
            try:
                syscalls.exchange(self._directory, temporary, self._name)
            except FileNotFoundError:  # it was removed meanwhile
                self._move_back(temporary)
                return
            if _moved_mark(status_of(self._directory, temporary)) == _moved_mark(inside):
                break
            inside = entering
        os.fsync(self._directory)

    def _move_back(self, temporary: str) -> None:
        with suppress(FileExistsError):  # what has the name now is newer
            syscalls.move(self._directory, temporary, self._name)
        os.fsync(self._directory)

    def _discard(self, temporary: str, written: os.stat_result | None) -> None:
        """Remove the temporary file, unless it is another program's."""
        if _moved_mark(status_of(self._directory, temporary)) == _moved_mark(written):
            _unlink(self._directory, temporary)

    def _sha256(self, name: str) -> str | None:
        """The hash of a regular file in the directory; None for anything else, and for what cannot be read."""
        try:
            with self._opened(name) as opened:
                return None if opened is None else _sha256_of(opened[0])
        except LcpError:
            return None


def _is_written(status: os.stat_result) -> bool:
    """True if a temporary file has been written in full."""
    return stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) != _UNFINISHED


def split(path: str) -> tuple[str, str]:
    """The directory that a path lies in, and its name there."""
    parent, _, name = path.removesuffix("/").rpartition("/")
    return parent, name


def sync_directory(directory: int, path: str) -> None:
    try:
        os.fsync(directory)
    except OSError as error:
        raise refusal(error, path) from error


def check_writable(directory: int, path: str) -> None:
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=directory, effective_ids=True):
        raise refusal(OSError(errno.EACCES, os.strerror(errno.EACCES)), path)


def _sha256_of(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep_owner_and_mode(descriptor: int, before: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):  # only root may give files away; the mode matters more
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def check_name(name: str, path: str) -> None:
    """Raises `LcpError` for the last part of a path that cannot name a file."""
    if name in ("", ".", ".."):
        raise LcpError(ErrorCode.NOT_A_FILE, f"{path!r} is a directory, not a regular file")
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError as error:
        message = f"path {path!a} cannot be named: Python has started with {error.encoding} for file names"
        advice = "Start it in a UTF-8 locale, or with PYTHONUTF8=1."
        raise LcpError(ErrorCode.INVALID_PARAMS, message, advice=advice) from error
    if "\0" in path or length > MAX_NAME:
        raise LcpError(
            ErrorCode.INVALID_PARAMS, f"path {path[:60]!r} holds a NUL or a name above {MAX_NAME} bytes"
        )


def _unlink(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
