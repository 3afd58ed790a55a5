"""Connect Unix sockets for a confined program, to those beneath the directories that it owns alone.

Landlock does not cover connections to sockets by path, so the program makes none itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lcp_engine.features.programs.wall.caller import AT_CWD, Caller, CallerGone, OwnedPlaces
from lcp_engine.sandbox.system.seccomp import Notice, Notices
from lcp_engine.sandbox.system.syscalls import system_call

_PIDFD_GETFD = 438
_MOST_ADDRESS = 110
"""Bytes of struct sockaddr_un."""
_MOST_WAITING = 64


@dataclass(frozen=True)
class _Waiting:
    """A connection that the other side has no room for yet, of a program that waits for it."""

    notice: Notice
    caller: Caller


class Connections:
    """The connections that a program asks for, one by one; none of them blocks."""

    def __init__(self, owned: OwnedPlaces) -> None:
        self._owned = owned
        self._waiting: list[_Waiting] = []

    @property
    def are_waiting(self) -> bool:
        """True if some are to be tried again."""
        return bool(self._waiting)

    def connect(self, notices: Notices, notice: Notice, caller: Caller) -> None:
        """Make a connection and answer the call, at once or when there is room. Raises OSError and `CallerGone`."""
        if not self._try(notice, caller):
            if len(self._waiting) >= _MOST_WAITING:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self._waiting.append(_Waiting(notice, caller))
            return
        notices.answer(notice)

    def try_again(self, notices: Notices) -> None:
        """Try those that wait; forget those whose program has ended."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            try:
                self.connect(notices, one.notice, one.caller)
            except CallerGone:
                continue
            except OSError as error:
                notices.answer(one.notice, error.errno or errno.EPERM)

    def _try(self, notice: Notice, caller: Caller) -> bool:
        """False if a socket that blocks has to wait."""
        descriptor, address, size = notice.arguments[:3]
        with caller.opened(AT_CWD, _path(caller, address, size & 0xFFFFFFFF)) as found:
            if not self._owned.hold(found):
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            with _socket_of(caller, notice.thread, descriptor & 0xFFFFFFFF) as one:
                return _connect(one, f"/proc/self/fd/{found}")


def _path(caller: Caller, address: int, size: int) -> bytes:
    """The path of an address. EINVAL if it is of another family; EPERM if it is a name in no directory (abstract)."""
    if not 2 <= size <= _MOST_ADDRESS:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    found = caller.read(address, size)
    (family,) = struct.unpack("=H", found[:2])
    if family != socket.AF_UNIX or size == 2:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    path = found[2:].partition(b"\0")[0]
    if not path:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    return path


def _socket_of(caller: Caller, thread: int, descriptor: int) -> socket.socket:
    """The same socket as the thread's own."""
    process = os.pidfd_open(_process_of(thread))
    try:
        call = system_call()
        found = call(*map(ctypes.c_long, (_PIDFD_GETFD, process, descriptor, 0)))
        reason = ctypes.get_errno()
    finally:
        os.close(process)
    if found < 0:
        raise OSError(reason, os.strerror(reason))
    try:
        caller.check()
        return socket.socket(fileno=found)
    except (CallerGone, OSError):
        os.close(found)
        raise


def _process_of(thread: int) -> int:
    """The process of a thread."""
    for line in Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == "Tgid":
            return int(value)
    raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


def _connect(one: socket.socket, address: str) -> bool:
    """Connect without blocking; the flag for that is shared with the program, and put back."""
    blocks = os.get_blocking(one.fileno())
    os.set_blocking(one.fileno(), False)
    try:
        one.connect(address)
    except BlockingIOError:
        if not blocks:
            raise
        return False
    finally:
        with suppress(OSError):
            os.set_blocking(one.fileno(), blocks)
    return True
