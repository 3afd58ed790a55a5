"""Order the processes that write to one SQLite file: a ticket lock, first come, first served.

SQLite gives its lock to whichever process asks first after a commit, and sleeps between attempts: a process that writes
all the time starves the others. Here a writer draws a ticket and locks (OFD) the byte of a file that has the ticket's
number. Its turn has come once every ticket before it was served or its byte is no longer locked: a process that dies
loses its lock, wherever it was in the queue, and a forked child inherits none. A writer that leaves wakes the next one
(futex(2)), and keeps its byte locked for a while, which no process checks any more: unlocking each would cost a system
call for each transaction.

The queue is for fairness; SQLite's own lock is what protects. If none was served for a while, because a process in the
queue is stopped, those behind it go ahead, and SQLite's lock decides. Writers that do not queue (another program, a
process that cannot open the file) are waited for by SQLite itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

from lcp_engine.sandbox.system.kept_descriptors import keep_from_children, unlock_and_close

# Words of 8 bytes: the last ticket drawn, the last one served, and the futexes on which writers sleep.
_DRAWN, _SERVED, _FUTEXES = 0, 1, 2
_FUTEX_COUNT = 62
_SIZE = 8 * (_FUTEXES + _FUTEX_COUNT)
PATIENCE = 1.0
"""Seconds without anyone being served until those who wait go ahead."""
_CHECK_SECONDS = 0.02
"""How often a writer checks whether those before it have died."""
_MOST_KEPT = 64
"""Bytes that stay locked after their turn: unlocking each costs a call, and the kernel walks a list of all of them."""
_DRAW_SECONDS = 0.00005
_POLL_SECONDS, _WAIT_FOR_CURRENT_SECONDS = 0.0005, 1.0
_LOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux
_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_WAIT, _WAKE, _ONE = 0, 1, 1


def open_writer_queue(path: Path, patience: float = PATIENCE) -> WriterQueue | None:
    """The queue at `path`, created if needed; None if this machine cannot have one.

    A writer goes ahead when nobody was served for `patience` seconds.
    """
    if sys.platform != "linux" or sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        # A full disk is an error here, and not a signal at the first write.
        os.posix_fallocate(descriptor, 0, _SIZE)
        return WriterQueue(descriptor, patience)
    except OSError:
        os.close(descriptor)
        return None


class WriterQueue:
    """One thread's place in the queue: inside `with` it is its turn, or those before it do not move."""

    def __init__(self, descriptor: int, patience: float) -> None:
        self._descriptor = keep_from_children(descriptor)
        self._patience = patience
        self._memory = _map(descriptor)
        self._words = memoryview(self._memory).cast("q")
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._number = 0
        self._kept = 0

    def __enter__(self) -> None:
        try:
            self._number = self._draw()
            if self._words[_SERVED] != self._number - 1:
                self._wait()
        except BaseException:  # an interrupt, too: no writer may wait for one that went away
            self._unlock()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        words, next_one = self._words, self._number + 1
        words[_SERVED] = max(words[_SERVED], self._number)  # others may have gone ahead of this one
        self._kept += 1
        if self._kept == _MOST_KEPT:
            self._unlock()
            self._kept = 0
        if words[_DRAWN] >= next_one:
            futex = _futex_of(next_one)
            words[futex] = (words[futex] + 1) % 2**31
            self._futex(futex, _WAKE, _ONE)

    @property
    def has_waiters(self) -> bool:
        """Inside `with`: whether another writer waits."""
        return self._words[_DRAWN] > self._number

    def wait_for_current(self) -> None:
        """Outside `with`: wait until all writers that are in the queue now have left it, a moment at most."""
        last, end = self._words[_DRAWN], time.monotonic() + _WAIT_FOR_CURRENT_SECONDS
        while self._words[_SERVED] < last and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def for_another_thread(self) -> WriterQueue:
        """A place for one more thread."""
        # Locks belong to an open file; the directory may have been moved since.
        path = f"/proc/self/fd/{self._descriptor}"
        return WriterQueue(os.open(path, os.O_RDWR | os.O_CLOEXEC), self._patience)

    def close(self) -> None:
        """Leave the queue for good."""
        if self._descriptor >= 0:
            self._words.release()
            self._memory.close()
            with suppress(OSError):  # in a forked child it is closed already
                self._unlock()
            unlock_and_close(self._descriptor)
            self._descriptor = -1

    def _draw(self) -> int:
        """Draw the next ticket, its byte locked: only the process that holds the next byte may draw it.

        The byte of a process that does not draw, because it is stopped, is passed over.
        """
        words, drawing, step = self._words, _Standstill(self._patience), 1
        while True:
            number = words[_DRAWN] + step
            if self._lock(number):
                if words[_DRAWN] == number - step:
                    words[_DRAWN] = number
                    return number
                self._unlock()
            elif drawing.lasts(words[_DRAWN]):
                step += 1
            else:
                step = 1
                time.sleep(_DRAW_SECONDS)

    def _wait(self) -> None:
        futex, serving = _futex_of(self._number), _Standstill(self._patience)
        while True:
            value = self._words[futex]
            if not self._has_writer_before() or serving.lasts(self._words[_SERVED]):
                return
            self._futex(futex, _WAIT, value, _CHECK_SECONDS)

    def _lock(self, number: int) -> bool:
        try:
            fcntl.fcntl(
                self._descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
            )
        except BlockingIOError:
            return False
        return True

    def _unlock(self) -> None:
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _EVERYTHING)

    def _has_writer_before(self) -> bool:
        before = self._number - self._words[_SERVED] - 1
        if before <= 0:
            return False
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, self._number - before, before, 0)
        found: tuple[int, ...] = _LOCK.unpack(fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked))
        return found[0] != fcntl.F_UNLCK

    def _futex(self, word: int, operation: int, value: int, seconds: float = 0.0) -> None:
        """`_WAIT`: sleep until the word is signalled, if it still has `value`; `_WAKE`: wake one that sleeps."""
        call = _futex_call()
        if call is None:
            time.sleep(_DRAW_SECONDS if operation == _WAIT else 0)
            return
        until = _Time(0, int(seconds * 1e9))
        call(self._address + 8 * word, operation, value, ctypes.byref(until) if seconds else None)


def _map(descriptor: int) -> mmap.mmap:
    """The file's words, mapped from a second open file: `mmap` keeps a copy of its descriptor in forked children."""
    another = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(another, _SIZE)
    finally:
        os.close(another)


class _Standstill:
    """Whether a number has stayed the same for too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._number = -1
        self._since = 0.0

    def lasts(self, number: int) -> bool:
        now = time.monotonic()
        if number != self._number:
            self._number, self._since = number, now
        return now - self._since > self._seconds


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_EVERYTHING = _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)


def _futex_of(ticket: int) -> int:
    return _FUTEXES + ticket % _FUTEX_COUNT


@cache
def _futex_call() -> Callable[[int, int, int, object], int] | None:
    number = _FUTEX_NUMBERS.get(platform.machine())
    if number is None:
        return None
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long

    def futex(address: int, operation: int, value: int, until: object) -> int:
        return int(
            call(
                ctypes.c_long(number), ctypes.c_void_p(address), ctypes.c_int(operation), ctypes.c_uint32(value),
                until, None, ctypes.c_int(0),
            )
        )  # fmt: skip

    return futex
