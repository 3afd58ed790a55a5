"""Mount what a program sees of a root, in a mount namespace of this process, for bubblewrap to bind."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lcp_engine.features.programs.wall.views.view import Overlay

_PLACES = ("/mnt", "/media", "/srv", "/boot", "/run", "/sys")
"""Directories one of which is hidden by our mounts, in our own namespace alone."""
_CLONE = {"x86_64": 56, "aarch64": 220}
# linux/sched.h, linux/mount.h
_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_PROCESSES = 0x20000, 0x8000000, 0x10000000, 0x20000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _SLAVE, _RELATIVE_TIMES = 0x20, 0x1000, 0x4000, 1 << 19, 1 << 21
_LOCKED = _NO_SUID | _NO_DEVICES | _NO_EXEC | os.ST_NOATIME | os.ST_NODIRATIME
"""Flags that a mount of a user namespace cannot lose."""
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
"""Those of the machine that bubblewrap shows a program."""


class CannotMount(OSError):
    """A namespace or a mount was refused. `strerror` says which."""


def fork_into_namespaces() -> tuple[int, tuple[int, int] | None]:
    """Fork a process with one thread; the child is number 1 of new processes, with mounts and IPC of its own.

    When it ends, the kernel ends all in there. Root keeps its users, so that the child may become another one; that of
    an ordinary user, or of root without CAP_SYS_ADMIN, has a user namespace, too. Returns what os.fork does, and the
    user and group for `settle` where there is such a namespace. Raises `CannotMount`, and OSError if there are too many
    processes.
    """
    own = (os.geteuid(), os.getegid())
    try:
        if own[0] == 0:
            with suppress(PermissionError):
                return _forked(0), None
        return _forked(_NEW_USER), own
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            raise
        raise CannotMount(error.errno, f"no namespaces: {error.strerror}") from error


def settle(mapped: tuple[int, int] | None) -> None:
    """Prepare the new namespaces of this process: its user, mounts that no other process sees, its processes in /proc.

    Raises `CannotMount`.
    """
    try:
        if mapped is not None:
            user, group = mapped
            for file, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                Path("/proc/self", file).write_text(text)
        _mount(None, "/", None, _RECURSIVE | _SLAVE)
        for name in _DEVICES:
            _seal(f"/dev/{name}")
    except OSError as error:
        raise CannotMount(error.errno, f"no namespaces: {error.strerror}") from error
    _attempt("/proc", "proc", "proc", "/proc", None, flags=_NO_SUID | _NO_DEVICES | _NO_EXEC)


def _seal(device: str) -> None:
    """Have no program change the times of a device, as anybody can, nor its mode, as root can, who owns it."""
    if not os.path.exists(device):
        return
    flags = os.statvfs(device).f_flag
    kept = flags & _LOCKED | (_RELATIVE_TIMES if flags & os.ST_RELATIME else 0)
    _mount(device, device, None, _BIND)
    _mount(None, device, None, _REMOUNT | _BIND | _READ_ONLY | kept)


@dataclass
class Mounts:
    """Mount points on a small file system of its own, which hides a directory that no `source` is in."""

    place: str
    overlays: list[int] = field(default_factory=list, init=False)
    """Descriptors of the overlays that were mounted: what has them open keeps the kernel from tearing these down."""
    _count: int = field(default=0, init=False)

    @classmethod
    def made(cls, sources: Iterable[str]) -> Mounts:
        """Mount that file system. Raises `CannotMount`."""
        used = [os.path.realpath(source) for source in sources]
        for place in _PLACES:
            if os.path.isdir(place) and not any(one == place or one.startswith(place + "/") for one in used):
                mounts = cls(os.path.realpath(place))
                _attempt("a temporary file system", "tmpfs", "tmpfs", place, "mode=755,size=16m")
                return mounts
        raise CannotMount(errno.EBUSY, f"no directory is free for mounts: tried {', '.join(_PLACES)}")

    def overlay(self, overlay: Overlay) -> str:
        """Mount an overlay; returns where. Sources are named by descriptors, so that no path is too long or odd.

        Raises OSError for one whose lowest directory is not the expected one, and `CannotMount`.
        """
        opened = [_opened(one) for one in reversed(overlay.lower)]
        writable = [_opened(one) for one in (overlay.upper, overlay.work) if one]
        try:
            if overlay.expected not in (None, identity_of(opened[-1])):
                raise OSError(errno.ESTALE, "another directory is in its place now", overlay.path)
            if not writable and len(opened) == 1:
                return self.bind(opened[0])
            where = self.directory()
            options = f"userxattr,lowerdir={':'.join(map(_named, opened))}"
            if writable:
                options += f",upperdir={_named(writable[0])},workdir={_named(writable[1])}"
            flags = _NO_SUID | _NO_DEVICES | (0 if writable else _READ_ONLY)
            about = f"an overlay at {overlay.path}, with its changes in {overlay.upper or 'nothing'}"
            _attempt(about, "overlay", "overlay", where, options, flags=flags)
            self.overlays.append(_opened(where))
            return where
        finally:
            for one in (*opened, *writable):
                os.close(one)

    def bind(self, source: int) -> str:
        """Bind an opened file or directory, with what is mounted below it; returns where."""
        is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
        where = self.directory() if is_directory else self.file(b"")
        _attempt("a bind", _named(source), None, where, flags=_BIND | _RECURSIVE)
        return where

    def directory(self) -> str:
        """Make a directory that all may read; returns where."""
        where = self._next()
        Path(where).mkdir()
        return where

    @staticmethod
    def bind_at(source: str, where: str) -> None:
        """Bind a file or directory at a place of ours that is there."""
        _attempt("a bind", source, None, where, flags=_BIND | _RECURSIVE)

    def bind_path(self, source: str) -> str:
        """Bind a file or directory by its path; returns where. Raises OSError."""
        opened = _opened(source)
        try:
            return self.bind(opened)
        finally:
            os.close(opened)

    def memory(self, size: int, files: int) -> str:
        """Mount a file system in memory with a size, that anybody may write; returns where."""
        where = self.directory()
        options = f"mode=1777,size={size},nr_inodes={files}"
        _attempt("a file system in memory", "tmpfs", "tmpfs", where, options, flags=_NO_SUID | _NO_DEVICES)
        return where

    def file(self, content: bytes) -> str:
        """Make a small file that all may read; returns where."""
        where = self._next()
        Path(where).write_bytes(content)
        return where

    def _next(self) -> str:
        self._count += 1
        return f"{self.place}/{self._count}"


def _forked(users: int) -> int:
    """Call clone(2): os.fork knows no namespaces, and a second fork would cost a command a tenth of its time.

    What os.fork does besides is for other threads, of which there are none.
    """
    if platform.machine() not in _CLONE:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _NEW_MOUNTS | _NEW_IPC | _NEW_PROCESSES | users | signal.SIGCHLD
    # The child needs the interpreter's lock, which PyDLL keeps.
    call = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    forked = int(call(*map(ctypes.c_long, (_CLONE[platform.machine()], flags, 0, 0, 0, 0))))
    if forked < 0:
        reason = ctypes.get_errno()
        raise OSError(reason, os.strerror(reason))
    return forked


def identity_of(opened: int) -> tuple[int, int]:
    """Device and inode of an open file or directory."""
    status = os.fstat(opened)
    return status.st_dev, status.st_ino


def become(user: tuple[int, int]) -> None:
    """Be that user and group alone, for good. Raises OSError."""
    uid, gid = user
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _opened(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _named(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _attempt(
    about: str,
    source: str,
    kind: str | None,
    where: str,
    options: str | None = None,
    *,
    flags: int = 0,
) -> None:
    try:
        _mount(source, where, kind, flags, options)
    except OSError as error:
        raise CannotMount(error.errno, f"{about} cannot be mounted: {error.strerror}") from error


def _mount(source: str | None, where: str, kind: str | None, flags: int, options: str | None = None) -> None:
    *paths, data = (one and ctypes.c_char_p(os.fsencode(one)) for one in (source, where, kind, options))
    _checked(_LIBC.mount(*paths, ctypes.c_ulong(flags), data))


def _checked(returned: int) -> None:
    if returned != 0:
        reason = ctypes.get_errno()
        raise OSError(reason, os.strerror(reason))
