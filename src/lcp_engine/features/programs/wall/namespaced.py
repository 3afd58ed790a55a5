"""Watch a program in namespaces from outside: its start, its processes, and its true end."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import resource
import select
import signal
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_START_SECONDS = 60.0
_SPIN_SECONDS = 5.0
_SPIN = 0.0001
_THREADS = 8
"""Threads that each process may have on average: RLIMIT_NPROC counts those, and so do numbers."""
_NUMBERS = Path("/proc/sys/kernel/pid_max")
_OWN_NUMBERS = (6, 14)
"""The version of Linux since which each namespace of processes has a largest number of its own."""
_FIRST_NUMBERS, _MOST_NUMBERS = 300, 2**22
"""Numbers that the kernel gives only once (kernel/pid.c), and all there are."""
_GET_INFO, _EXIT = 0xC040FF0B, 1 << 3  # PIDFD_GET_INFO, PIDFD_INFO_EXIT (linux/pidfd.h, Linux 6.15)
_DEADLY = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGBUS,
    }
    | {signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGALRM, signal.SIGTERM}
    | {signal.SIGXCPU, signal.SIGXFSZ, signal.SIGSYS}
)
_NOT_FOUND = (
    (errno.ENOENT, "No such file or directory"),
    (errno.EACCES, "Permission denied"),
    (errno.ENOEXEC, "Exec format error"),
    (errno.ENOTDIR, "Not a directory"),
)


class NotStarted(Exception):
    """The program was not executed: `number` is the errno of that, None if its walls could not be made."""

    def __init__(self, number: int | None, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        self.reason = reason


def has_own_numbers() -> bool:
    """True if this kernel has a largest number of processes for each namespace of them."""
    return tuple(int(one) for one in re.findall(r"\d+", platform.release())[:2]) >= _OWN_NUMBERS


def limit_numbers(processes: int) -> bool:
    """Limit the processes and threads of this namespace of processes by their numbers; false if that is refused.

    It is the only limit of the kernel that holds for root, and nothing waits for it. An older kernel has one number for
    the whole machine, which stays as it is.
    """
    most = processes * _THREADS + _FIRST_NUMBERS
    while has_own_numbers() and most <= _MOST_NUMBERS:
        try:
            _NUMBERS.write_text(str(most))
        except OSError as error:
            if error.errno != errno.EINVAL:
                return False
            most *= 2  # it wants room for some processes on each processor
        else:
            return True
    return False


class Namespaced:
    """A program that bwrap runs. `status` and `gate` are the descriptors for bwrap."""

    def __init__(self) -> None:
        self._reports, self.status = os.pipe2(os.O_CLOEXEC)
        gate, self._opens = os.pipe2(os.O_CLOEXEC)
        # A pipe whose reader may write it has no end, at which bwrap would start the program, too.
        self.gate = os.open(f"/proc/self/fd/{gate}", os.O_RDWR | os.O_CLOEXEC)
        os.close(gate)
        self._said = b""
        self._first = 0
        """Its process that is number 1 in there."""
        self._first_fd: int | None = None
        self._program: int | None = None
        """The program itself, as a descriptor (pidfd_open(2)), like `_first_fd`."""

    def close_ends_of_child(self) -> None:
        for one in (self.status, self.gate):
            os.close(one)

    def close(self) -> None:
        for one in (self._reports, self._opens, self._first_fd, self._program):
            if one is not None:
                os.close(one)

    def let_start(self, bwrap: int, processes: int) -> None:
        """Let the program start once its namespaces are there; if they are not to be, `exit_code` says so."""
        if not self._hear_first(bwrap):
            return
        most = processes * _THREADS
        with suppress(ProcessLookupError, PermissionError):
            resource.prlimit(self._first, resource.RLIMIT_NPROC, (most, most))
        with suppress(BrokenPipeError):
            os.write(self._opens, b".")
        self._find_program()

    def end(self) -> None:
        """Kill the first process in there, with which the kernel kills all others."""
        if self._first_fd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first_fd, signal.SIGKILL)

    def of_program(self, family: Sequence[int]) -> list[int]:
        """Those of these processes that are not bubblewrap's."""
        if not self._first:
            return []
        after = family.index(self._first) + 1 if self._first in family else 0
        return [*family[after:]]

    def exit_code(self, code: int, stderr: bytes) -> int:
        """The program's true exit code, negative for a signal, given that of bwrap. Raises `NotStarted`."""
        self._hear()
        found = re.search(rb'"exit-code"\s*:\s*(\d+)', self._said)
        if found is None:
            if code < 0:
                return code
            raise _why_not_started(stderr)
        told = int(found[1])
        status = None if self._program is None else _exit_status(self._program)
        if status is not None:
            return os.waitstatus_to_exitcode(status)
        return 128 - told if told - 128 in _DEADLY else told

    def _hear_first(self, bwrap: int) -> bool:
        until = time.monotonic() + _START_SECONDS
        waiting = select.poll()
        waiting.register(self._reports, select.POLLIN)
        while time.monotonic() < until:
            if waiting.poll(1000):
                if not self._hear():
                    return False
                if b'"child-pid"' in self._said:  # its number there is another one than here
                    return self._find_first(bwrap)
        raise NotStarted(None, f"bwrap has not made namespaces within {_START_SECONDS:g} s")

    def _find_first(self, bwrap: int) -> bool:
        with suppress(OSError, IndexError):  # it has ended
            self._first = _children(bwrap)[0]
            self._first_fd = os.pidfd_open(self._first)
        return self._first_fd is not None

    def _hear(self) -> bool:
        """Read what bwrap reports; false at the end."""
        os.set_blocking(self._reports, False)
        try:
            piece = os.read(self._reports, 65536)
        except BlockingIOError:
            return True
        self._said += piece
        return piece != b""

    def _find_program(self) -> None:
        """Open the program while it runs: its exit status can be read then when it is gone."""
        until = time.monotonic() + _SPIN_SECONDS
        while time.monotonic() < until:
            try:
                if found := _children(self._first):
                    self._program = os.pidfd_open(found[0])
                    return
            except OSError:
                return
            time.sleep(_SPIN)
            if not self._hear() or b"exit-code" in self._said:
                return


def _children(process: int) -> list[int]:
    """Those of a process with one thread. Raises OSError."""
    return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]


def _exit_status(program: int) -> int | None:
    info = bytearray(struct.pack("<Q56x", _EXIT))
    try:
        fcntl.ioctl(program, _GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("<Q", info)
    (status,) = struct.unpack_from("<i", info, 60)
    return int(status) if mask & _EXIT else None


def _why_not_started(stderr: bytes) -> NotStarted:
    said = [line for line in stderr.decode(errors="replace").splitlines() if line.startswith("bwrap: ")]
    line = (
        said[-1].removeprefix("bwrap: ")
        if said
        else "it ended before the program was started; its stderr says why"
    )
    if line.startswith(("execvp ", "Can't chdir ")):
        for number, words in _NOT_FOUND:
            if line.endswith(words):
                return NotStarted(number, words)
        return NotStarted(errno.EIO, line)
    return NotStarted(None, f"bwrap: {line}")
