"""Call openat2(2) and renameat2(2), which Python does not offer, and find out what the kernel supports."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from functools import cache

# linux/openat2.h
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

# During a concurrent rename the kernel returns EAGAIN for a lookup with ".."; the longest run measured was 8.
_TRIES = 64
_NUMBER = 437  # the same on every architecture since the numbers were unified
_MACHINES = frozenset({"x86_64", "aarch64", "arm64", "riscv64", "ppc64le", "s390x", "loongarch64"})
_LANDLOCK = 444  # landlock_create_ruleset; with flag 1 it returns the version
_CURRENT_DIRECTORY = -100

# linux/fs.h
_NO_REPLACE, _EXCHANGE = 1, 2
_NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def opener(directory: int, flags: int, resolve: int) -> Callable[[str], int]:
    """A function like os.open with dir_fd, but the kernel applies `resolve` to every step of a path; raises OSError.

    Arguments that all calls share are converted once, so that it costs little more than os.open.
    """
    quick, call = system_call(with_errno=False), system_call()
    number, where = ctypes.c_long.from_param(_NUMBER), ctypes.c_long.from_param(directory)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)  # the kernel only reads it: one for all threads
    how_at, size = ctypes.byref(how), ctypes.c_size_t.from_param(ctypes.sizeof(how))

    def open_beneath(path: str) -> int:
        if "\0" in path:
            raise ValueError("embedded null character")  # as os.open says; C would stop there
        try:
            name = path.encode()
        except UnicodeEncodeError:
            name = os.fsencode(path)
        descriptor = quick(number, where, name, how_at, size)
        if descriptor >= 0:
            return descriptor
        for _ in range(_TRIES):
            descriptor = call(number, where, name, how_at, size)
            if descriptor >= 0:
                return descriptor
            reason = ctypes.get_errno()
            if reason not in (errno.EAGAIN, errno.EINTR):
                raise OSError(reason, os.strerror(reason), path)
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)

    return open_beneath


def exchange(directory: int, one: str, other: str) -> bool:
    """Exchange two names in a directory. False if its file system, or the kernel, cannot; raises OSError."""
    return _rename(directory, one, other, _EXCHANGE)


def move(directory: int, name: str, new: str) -> None:
    """Rename a file in a directory to a name that is free. Raises OSError: FileExistsError if it is not."""
    if _rename(directory, name, new, _NO_REPLACE):
        return
    os.link(name, new, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    os.unlink(name, dir_fd=directory)


def _rename(directory: int, name: str, new: str, flags: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    old_name, new_name = os.fsencode(name), os.fsencode(new)
    if call(directory, old_name, directory, new_name, ctypes.c_uint(flags)) == 0:
        return True
    reason = ctypes.get_errno()
    if reason in _NOT_SUPPORTED:
        return False
    raise OSError(reason, os.strerror(reason), name, None, new)


@cache
def has_openat2() -> bool:
    """True if this kernel, and any filter of its calls, supports openat2; checked once."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return False
    try:
        probe = opener(_CURRENT_DIRECTORY, os.O_PATH | os.O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
        os.close(probe("."))
    except OSError:
        return False
    return True


@cache
def landlock_version() -> int | None:
    """The version of Landlock that this kernel offers; None if it has none."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return None
    found = system_call()(ctypes.c_long(_LANDLOCK), None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return found if found > 0 else None


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def sync_file_system(descriptor: int) -> None:
    """syncfs(2): make durable all that is written in the file system of an open file. Raises OSError."""
    try:
        function: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syncfs
    except AttributeError:  # the C library has none
        os.sync()
        return
    if function(ctypes.c_int(descriptor)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@cache
def _renameat2() -> Callable[..., int] | None:
    """renameat2(2); None if the C library has none."""
    try:
        function: Callable[..., int] = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return None
    return function


@cache
def system_call(*, with_errno: bool = True) -> Callable[..., int]:
    """syscall(2). With `with_errno`, which costs a tenth, the error is in ctypes.get_errno()."""
    call = ctypes.CDLL(None, use_errno=with_errno).syscall
    call.restype = ctypes.c_long
    function: Callable[..., int] = call
    return function
