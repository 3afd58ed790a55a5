"""Read what a call of a confined program names: its memory, its descriptors, and files by their paths.

Nothing here depends on the program once it is opened: memory that changes and links that are swapped meanwhile change
neither a path that was read nor a file that was found.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from lcp_engine.sandbox.system.syscalls import RESOLVE_NO_MAGICLINKS, opener

AT_CWD = -100
PATH_BYTES = 4096
"""Bytes of the longest path, with its end (PATH_MAX)."""
_MOST_ADDRESS = 2**63 - 1


class CallerGone(Exception):
    """The thread does not wait for its call any more: it was killed."""


class OwnedPlaces:
    """The directories that a program owns, held open."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._descriptors: list[int] = []
        for path in paths:
            with suppress(OSError):
                self._descriptors.append(os.open(path, os.O_PATH | os.O_CLOEXEC))

    def hold(self, descriptor: int) -> bool:
        """True if the opened file is one of these directories or beneath one. Raises OSError.

        As for Landlock, the path by which the kernel has found it counts: a program can move or link nothing out of
        these places, nor into them. A path of more than 4,096 bytes is ENAMETOOLONG.
        """
        path = _path_of(descriptor)
        return any(
            path == place or path.startswith(place + b"/") for place in map(_path_of, self._descriptors)
        )

    def close(self) -> None:
        """Close the directories; nothing is owned then."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def _path_of(descriptor: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % descriptor)


class Caller:
    """A thread that waits for its call. `is_waiting` tells whether it still does.

    What is read and opened by the number of the thread is of this thread if it waits afterwards, else `CallerGone` is
    raised. Other errors are OSError, with the number that the call returns.
    """

    def __init__(self, thread: int, is_waiting: Callable[[], bool]) -> None:
        self._thread = thread
        self._is_waiting = is_waiting

    def read_path(self, address: int) -> bytes:
        """The text at an address up to its NUL. EFAULT, or ENAMETOOLONG if none is in the first 4,096 bytes."""
        text, end, _ = self._read(address, PATH_BYTES).partition(b"\0")
        if not end:
            raise _error(errno.ENAMETOOLONG if len(text) == PATH_BYTES else errno.EFAULT)
        return text

    def read(self, address: int, size: int) -> bytes:
        """Exactly so many bytes at an address. EFAULT."""
        found = self._read(address, size)
        if len(found) < size:
            raise _error(errno.EFAULT)
        return found

    def _read(self, address: int, size: int) -> bytes:
        """Bytes from an address up to the first that are not mapped."""
        if not 0 < address <= _MOST_ADDRESS - size:
            raise _error(errno.EFAULT)
        memory = self._open_own("mem", os.O_RDONLY)
        try:
            return os.pread(memory, size, address)
        except OSError as error:
            raise _error(errno.EFAULT) from error
        finally:
            os.close(memory)

    @contextmanager
    def opened(self, directory: int, path: bytes | None, *, follows: bool = True) -> Iterator[int]:
        """A descriptor (O_PATH) of what a path leads to from a directory of the thread; of that itself without a path.

        The path may lead anywhere, but through no descriptors and directories of processes other than the thread's own.
        """
        directory, path = self._without_proc(directory, path) if path and follows else (directory, path)
        base = os.open("/", os.O_PATH | os.O_CLOEXEC) if path and path[:1] == b"/" else self._base(directory)
        try:
            if path is None:
                yield base
                return
            flags = os.O_PATH | (0 if follows else os.O_NOFOLLOW)
            found = opener(base, flags, RESOLVE_NO_MAGICLINKS)(os.fsdecode(path))
            try:
                yield found
            finally:
                os.close(found)
        finally:
            os.close(base)

    def _without_proc(self, directory: int, path: bytes) -> tuple[int, bytes | None]:
        """The same place without /proc, which libc uses where the kernel has no call: /proc/self/fd/3 is descriptor 3.

        Here /proc/self would be another process.
        """
        found = _OWN_PROC.fullmatch(path)
        if found is None or (found["process"] or b"self") not in self._own_names():
            return directory, path
        rest = found["rest"].lstrip(b"/")
        return AT_CWD if found["number"] is None else int(found["number"]), rest or (
            b"." if found["rest"] else None
        )

    def _own_names(self) -> tuple[bytes, ...]:
        return b"self", b"thread-self", b"%d" % self._thread

    def _base(self, directory: int) -> int:
        if directory == AT_CWD:
            return self._open_own("cwd", os.O_PATH)
        if directory < 0:
            raise _error(errno.EBADF)
        try:
            return self._open_own(f"fd/{directory}", os.O_PATH)
        except FileNotFoundError as error:
            raise _error(errno.EBADF) from error

    def _open_own(self, name: str, flags: int) -> int:
        """Open a file of the thread in /proc. EPERM if the kernel keeps this process from it."""
        try:
            found = os.open(f"/proc/{self._thread}/{name}", flags | os.O_CLOEXEC)
        except PermissionError as error:
            raise _error(errno.EPERM) from error
        except OSError as error:
            self.check()
            raise error from error.__cause__
        try:
            self.check()
        except CallerGone:
            os.close(found)
            raise
        return found

    def check(self) -> None:
        """Raises `CallerGone` if the thread does not wait any more."""
        if not self._is_waiting():
            raise CallerGone


_OWN_PROC = re.compile(
    rb"/(?:proc/(?P<process>self|thread-self|[0-9]{1,10})|dev)/(?:fd/(?P<number>[0-9]{1,9})|cwd)(?P<rest>/.*|)",
    re.DOTALL,
)


def _error(reason: int) -> OSError:
    return OSError(reason, os.strerror(reason))
