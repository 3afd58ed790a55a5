"""Change the mode, owner and times of files for a confined program, beneath the directories that it owns.

Landlock does not cover these calls, so the program makes none of them itself: each either acts here as it would have,
or fails. What was opened is what is changed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lcp_engine.features.programs.wall.caller import AT_CWD, Caller, OwnedPlaces
from lcp_engine.sandbox.system.seccomp import Notice
from lcp_engine.sandbox.system.syscalls import system_call

AT_NO_FOLLOW, AT_EMPTY_PATH = 0x100, 0x1000
_NO_ID = 0xFFFFFFFF
_UTIMENSAT = {"x86_64": 280, "aarch64": 88}


def change_metadata(notice: Notice, caller: Caller, owned: OwnedPlaces) -> None:
    """Carry out one of the calls `OF_FILES`. Raises OSError, with what the call returns, and `CallerGone`.

    What is not owned is EPERM, as are bits by which a program runs as its owner, and owners other than the own user
    and groups.
    """
    call = _CALLS[notice.call]
    flags = 0 if call.flags is None else notice.arguments[call.flags] & 0xFFFFFFFF
    if flags & ~(AT_NO_FOLLOW | AT_EMPTY_PATH):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    directory = AT_CWD if call.directory is None else _signed(notice.arguments[call.directory])
    path = _path(notice, call, caller, directory, flags)
    change = call.prepare(caller, notice.arguments[call.value :])
    with caller.opened(directory, path, follows=call.follows and not flags & AT_NO_FOLLOW) as found:
        if not owned.hold(found):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        change(found)


def _path(notice: Notice, call: _Call, caller: Caller, directory: int, flags: int) -> bytes | None:
    """The path of a call; None for the descriptor itself."""
    if call.path is None:
        return None
    address = notice.arguments[call.path]
    if not address and call.may_lack_path and directory != AT_CWD:
        if flags:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return None
    path = caller.read_path(address)
    return None if not path and flags & AT_EMPTY_PATH else path


def _signed(number: int) -> int:
    """A register as an int of C."""
    low = number & 0xFFFFFFFF
    return low - 2**32 if low >= 2**31 else low


_Change = Callable[[int], None]
"""Changes an opened file (O_PATH)."""


def _mode(_: Caller, arguments: Sequence[int]) -> _Change:
    mode = arguments[0] & 0o7777

    def change(found: int) -> None:
        if mode & 0o6000 and not stat.S_ISDIR(os.fstat(found).st_mode):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        os.chmod(_place(found), mode)

    return change


def _owner(_: Caller, arguments: Sequence[int]) -> _Change:
    user, group = (one & 0xFFFFFFFF for one in arguments[:2])

    def change(found: int) -> None:
        if user not in (_NO_ID, os.geteuid()) or group not in (_NO_ID, os.getegid(), *os.getgroups()):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        os.chown(_place(found), *(-1 if one == _NO_ID else one for one in (user, group)))

    return change


def _place(found: int) -> str:
    """A path of an opened file; it leads to a symbolic link itself, if that is what was opened."""
    return f"/proc/self/fd/{found}"


def _seconds(caller: Caller, arguments: Sequence[int]) -> _Change:
    return _times(arguments, lambda at: [(one, 0) for one in struct.unpack("=2q", caller.read(at, 16))])


def _microseconds(caller: Caller, arguments: Sequence[int]) -> _Change:
    def read(at: int) -> list[tuple[int, int]]:
        first, its_part, second, part = struct.unpack("=4q", caller.read(at, 32))
        if not (0 <= its_part < 1_000_000 and 0 <= part < 1_000_000):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return [(first, its_part * 1000), (second, part * 1000)]

    return _times(arguments, read)


def _nanoseconds(caller: Caller, arguments: Sequence[int]) -> _Change:
    def read(at: int) -> list[tuple[int, int]]:
        first, its_part, second, part = struct.unpack("=4q", caller.read(at, 32))
        return [(first, its_part), (second, part)]  # the kernel checks them, and knows "now" and "as it is"

    return _times(arguments, read)


def _times(arguments: Sequence[int], read: Callable[[int], list[tuple[int, int]]]) -> _Change:
    times = None
    if arguments[0]:
        (first, its_part), (second, part) = read(arguments[0])
        times = ctypes.create_string_buffer(struct.pack("=4q", first, its_part, second, part), 32)

    def change(found: int) -> None:
        call, number = system_call(), ctypes.c_long(_UTIMENSAT[platform.machine()])
        if call(number, ctypes.c_long(found), b"", times, ctypes.c_long(AT_EMPTY_PATH)) != 0:
            reason = ctypes.get_errno()
            raise OSError(reason, os.strerror(reason))

    return change


@dataclass(frozen=True)
class _Call:
    """Which arguments of a call are what; without a directory it is the current one, without a path a descriptor."""

    prepare: Callable[[Caller, Sequence[int]], _Change]
    value: int
    directory: int | None = None
    path: int | None = None
    flags: int | None = None
    follows: bool = True
    may_lack_path: bool = False


_CALLS = {
    "chmod": _Call(_mode, 1, path=0),
    "fchmod": _Call(_mode, 1, directory=0),
    "fchmodat": _Call(_mode, 2, directory=0, path=1),
    "fchmodat2": _Call(_mode, 2, directory=0, path=1, flags=3),
    "chown": _Call(_owner, 1, path=0),
    "lchown": _Call(_owner, 1, path=0, follows=False),
    "fchown": _Call(_owner, 1, directory=0),
    "fchownat": _Call(_owner, 2, directory=0, path=1, flags=4),
    "utime": _Call(_seconds, 1, path=0),
    "utimes": _Call(_microseconds, 1, path=0),
    "futimesat": _Call(_microseconds, 2, directory=0, path=1, may_lack_path=True),
    "utimensat": _Call(_nanoseconds, 2, directory=0, path=1, flags=3, may_lack_path=True),
}
