"""Find the file or the directory at a path, in a directory that is locked, or without a lock (R20).

A path that ends in `/` is that of a directory. It is a file of no bytes: it is there or not, is made and removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress

from lcp_engine.clock import Micros
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import (
    Current,
    Digest,
    Local,
    LocalFile,
    LockedFile,
    Run,
    Snapshot,
    check_name,
    check_writable,
    run_here,
    split,
    step,
    sync_directory,
)
from lcp_engine.sandbox.directories import give_to_owner, is_root, remove_free, status_of
from lcp_engine.sandbox.root import Root, refusal, step_into

_NO_BYTES = hashlib.sha256(b"").hexdigest()


def local(path: str, directory: int, made: tuple[str, ...] = (), run: Run = run_here) -> LockedFile:
    """The file, or the directory, at `path` in a `directory` that this process has locked."""
    kind = LocalDirectory if path.endswith("/") else LocalFile
    return kind(path, directory, made, run)


def read_unlocked(root: Root, path: str, cap: int | None) -> Snapshot | None:
    """The file at `path`, None if there is none; nothing is locked or created. Refuses the paths that `lock` refuses.

    Reads at most `cap` bytes into memory; the hash covers the whole file.
    """
    parent, name = split(path)
    check_name(name, path)
    try:
        directory = root.open_directory(parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(error, path) from error
    try:
        file = local(path, directory)
        seen = file.read(None) if cap is None else file.read_within(cap)
        if isinstance(seen, int):
            digest = file.digest()
            return None if digest is None else Snapshot(digest.sha256, seen, None, digest.mode)
        return None if seen is None else Snapshot(seen.sha256, len(seen.data), seen.data, seen.mode)
    finally:
        os.close(directory)


class LocalDirectory(Local):
    """A directory; the lock is on the one above it."""

    @step
    def read(self, cap: int | None) -> Current | None:
        return self._found()

    @step
    def read_within(self, most: int) -> Current | int | None:
        return self._found()

    @step
    def digest(self) -> Digest | None:
        found = self._found()
        return None if found is None else Digest(found.sha256, found.mode)

    @step
    def put(
        self, data: bytes, temporary: str, mode: int | None = None, *, until: Micros | None = None
    ) -> None:
        self._check_time(until)
        try:
            os.mkdir(self._name, mode=0o777 if mode is None else mode, dir_fd=self._directory)
            if is_root():
                made = step_into(self._directory, self._name)
                give_to_owner(made, self._directory)
                os.close(made)
        except FileExistsError:
            raise LcpError(
                ErrorCode.CONFLICT,
                f"{self.path!r} was made by another program meanwhile",
                advice=GENERAL,
            ) from None
        except OSError as error:
            raise refusal(error, self.path) from error
        self.replaced = True

    @step
    def set_mode(self, before: int, after: int) -> bool:
        try:
            here = step_into(self._directory, self._name)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise refusal(error, self.path) from error
        try:
            if stat.S_IMODE(os.fstat(here).st_mode) not in (before, after):
                return False
            os.fchmod(here, after)
            os.fsync(here)
            return True
        finally:
            os.close(here)

    @step
    def sync(self) -> None:
        sync_directory(self._directory, self.path)

    @step
    def check_removable(self) -> None:
        check_writable(self._directory, self.path)

    @step
    def remove(self, temporary: str, *, until: Micros | None = None) -> None:
        """Raises `CONFLICT` if the directory is not empty, or something is about to be written into it."""
        self._check_time(until)
        try:
            with suppress(FileNotFoundError):
                remove_free(self._directory, self._name)
                self.replaced = True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EAGAIN):
                raise LcpError(
                    ErrorCode.CONFLICT, f"{self.path!r} is not empty and stays", advice=GENERAL
                ) from error
            raise refusal(error, self.path) from error
        sync_directory(self._directory, self.path)

    @step
    def mend(self, temporary: str, before: str | None, after: str | None) -> None:
        """Nothing of a directory is ever left half made."""

    def _found(self) -> Current | None:
        try:
            status = status_of(self._directory, self._name)
        except OSError as error:
            raise refusal(error, self.path) from error
        if status is None:
            return None
        check_directory(self.path, status.st_mode)
        return Current(b"", _NO_BYTES, stat.S_IMODE(status.st_mode))


def check_directory(path: str, mode: int) -> None:
    """Raises `PATH_EXISTS` if what has the path of a directory is none."""
    if not stat.S_ISDIR(mode):
        message = f"{path.removesuffix('/')!r} is there already, and is not a directory"
        raise LcpError(ErrorCode.PATH_EXISTS, message)
