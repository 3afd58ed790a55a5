"""Let processes that write to one file do so in the order in which they came.

SQLite lets whoever asks first after a commit have the lock, and sleeps between two questions: a process that writes
all the time keeps every other one out. Here a writer draws a number and holds an OS lock on the byte of a file that
bears it. It is first once all before it are served or hold their byte no more: a process that dies loses its byte,
wherever it stood. Whoever leaves wakes the next one (futex(2)), and keeps its byte for a while, which nobody looks at
any more: to unlock each would cost a call to the system for each transaction.

The order is a courtesy, and SQLite's lock what protects: who does not stand in line (another program, a process that
cannot reach the file) is waited for by SQLite itself.
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
from functools import cache
from pathlib import Path
from types import TracebackType

from lcp_engine.errors import ErrorCode, LcpError

_DRAWN, _SERVED, _BELLS = (
    0,
    1,
    2,
)  # words of 8 bytes: the last number drawn, the last one served, and the bells
_BELL_COUNT = 62
_SIZE = 8 * (_BELLS + _BELL_COUNT)
_LOOK_SECONDS = 0.02
"""How often a writer looks whether those before it have died."""
_MOST_KEPT = 64
"""Bytes that are kept after their turn: to give each back costs a call, and the kernel walks a list of all of them."""
_DRAW_SECONDS = 0.00005
_PASSING_SECONDS, _LET_PASS_SECONDS = 0.0005, 1.0
_LOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux
_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_WAIT, _WAKE, _ONE = 0, 1, 1


def make_line(path: Path, seconds: float) -> Line | None:
    """The line at `path`, which is made where it is not there; None where this machine cannot have one.

    `seconds` is how long a writer waits at most.
    """
    if sys.platform != "linux" or sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        os.posix_fallocate(
            descriptor, 0, _SIZE
        )  # a full disk tells now, and not by a signal at the first write
        return Line(descriptor, seconds)
    except OSError:
        os.close(descriptor)
        return None


class Line:
    """A place in the line for one thread at a time: first inside `with`, and in front of nobody after it.

    Raises `DATABASE_BUSY` when it is still not first after `seconds`.
    """

    def __init__(self, descriptor: int, seconds: float) -> None:
        self._descriptor = descriptor
        self._seconds = seconds
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._words = memoryview(self._memory).cast("q")
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._number = 0
        self._kept = 0

    def __enter__(self) -> None:
        try:
            self._number = self._draw()
            if self._words[_SERVED] != self._number - 1:
                self._wait()
        except BaseException:  # an interrupt, too: nobody is to wait for a writer that went away
            self._unlock()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        words, next_one = self._words, self._number + 1
        words[_SERVED] = self._number
        self._kept += 1
        if self._kept == _MOST_KEPT:
            self._unlock()
            self._kept = 0
        if words[_DRAWN] >= next_one:
            bell = _bell(next_one)
            words[bell] = (words[bell] + 1) % 2**31
            self._futex(bell, _WAKE, _ONE)

    @property
    def is_wanted(self) -> bool:
        """Inside `with`: whether somebody stands behind."""
        return self._words[_DRAWN] > self._number

    def let_pass(self) -> None:
        """Wait, in no place of one's own, until all who stand in line now have left it, a moment at most."""
        last, end = self._words[_DRAWN], time.monotonic() + _LET_PASS_SECONDS
        while self._words[_SERVED] < last and time.monotonic() < end:
            time.sleep(_PASSING_SECONDS)

    def another(self) -> Line:
        """A place of its own for one more thread."""
        # Locks belong to an open file; the directory may have been moved since.
        path = f"/proc/self/fd/{self._descriptor}"
        return Line(os.open(path, os.O_RDWR | os.O_CLOEXEC), self._seconds)

    def close(self) -> None:
        """Never stand in line again."""
        if self._descriptor >= 0:
            self._words.release()
            self._memory.close()
            os.close(self._descriptor)
            self._descriptor = -1

    def _draw(self) -> int:
        """The next number, its byte locked. Who has the lock of the next byte is the one who may draw it."""
        words, end = self._words, 0.0
        while True:
            number = words[_DRAWN] + 1
            if self._lock(number):
                if words[_DRAWN] == number - 1:
                    words[_DRAWN] = number
                    return number
                self._unlock()
            else:
                end = end or time.monotonic() + self._seconds
                self._check(end)
                time.sleep(_DRAW_SECONDS)

    def _wait(self) -> None:
        bell, end = _bell(self._number), time.monotonic() + self._seconds
        while True:
            rung = self._words[bell]
            if not self._is_anybody_before():
                return
            self._check(end)
            self._futex(bell, _WAIT, rung, _LOOK_SECONDS)

    def _check(self, end: float) -> None:
        if time.monotonic() > end:
            message = f"the database stayed locked by another process for {self._seconds:g} s"
            raise LcpError(ErrorCode.DATABASE_BUSY, message)

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

    def _is_anybody_before(self) -> bool:
        before = self._number - self._words[_SERVED] - 1
        if before <= 0:
            return False
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, self._number - before, before, 0)
        found: tuple[int, ...] = _LOCK.unpack(fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked))
        return found[0] != fcntl.F_UNLCK

    def _futex(self, word: int, operation: int, value: int, seconds: float = 0.0) -> None:
        """Sleep until the word is rung, if it is still `value`; or wake who sleeps."""
        call = _futex_call()
        if call is None:
            time.sleep(_DRAW_SECONDS if operation == _WAIT else 0)
            return
        until = _Time(0, int(seconds * 1e9))
        call(self._address + 8 * word, operation, value, ctypes.byref(until) if seconds else None)


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_EVERYTHING = _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)


def _bell(number: int) -> int:
    return _BELLS + number % _BELL_COUNT


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
