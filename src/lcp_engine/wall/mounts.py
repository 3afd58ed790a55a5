"""Join the directories of a view as overlays, in namespaces of this process alone (mount(2), user_namespaces(7))."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Mapping
from functools import cache

from lcp_engine.wall.view import Overlay, View

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # linux/sched.h
_BIND, _RECURSIVE, _PRIVATE, _NO_SUID, _NO_DEVICES = 4096, 16384, 1 << 18, 2, 4  # sys/mount.h
_PLACES = ("/sys/kernel", "/sys", "/mnt", "/media", "/srv")
"""Directories that no program needs, one of which is hidden, in the namespace alone, below what is joined."""


def join(view: View, files: Mapping[str, str]) -> dict[str, str]:
    """Mount all that a view joins, as seen by this process from now on, and become its user.

    Returns where each path of the view is found, and each of `files`, which are made with their texts. Only a process
    with one thread may call. Raises OSError, with the path that the kernel refuses where it is known.
    """
    user = (os.getuid(), os.getgid())
    if user[0] == 0 and _unshared(_NEW_MOUNTS):
        _check(_libc().mount(None, b"/", None, _RECURSIVE | _PRIVATE, None), "/")
    else:
        _check(_libc().unshare(_NEW_USER | _NEW_MOUNTS), "a namespace of users")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user[0]} {user[0]} 1")
        _write("/proc/self/gid_map", f"{user[1]} {user[1]} 1")
        _check(_libc().mount(None, b"/", None, _RECURSIVE | _PRIVATE, None), "/")
        user = (0, 0)
    opened = _open_all(view)
    place = next(one for one in _PLACES if os.path.isdir(one))
    _check(_libc().mount(b"tmpfs", os.fsencode(place), b"tmpfs", _NO_SUID | _NO_DEVICES, b"mode=0755"), place)
    found: dict[str, str] = {}
    for path, text in files.items():
        found[path] = f"{place}/{len(found)}"
        _write(found[path], text)
    for bind in view.binds:
        found[bind.path] = at = f"{place}/{len(found)}"
        _make_like(opened[bind.source], at)
        _mount_bind(_descriptor(opened[bind.source]), at, bind.source)
    for overlay in view.overlays:
        found[overlay.path] = at = f"{place}/{len(found)}"
        os.mkdir(at)
        _mount_overlay(overlay, opened, at)
    for descriptor in opened.values():
        os.close(descriptor)
    if user[0] == 0 and view.user is not None and os.getuid() == 0:
        os.setgroups([])
        os.setgid(view.user[1])
        os.setuid(view.user[0])
    return found


def _unshared(what: int) -> bool:
    return bool(_libc().unshare(what) == 0)


def _open_all(view: View) -> dict[str, int]:
    """Descriptors of all that is mounted: options of mounts then need no escapes, however a path is spelled."""
    paths = [bind.source for bind in view.binds]
    for one in view.overlays:
        paths += [*one.lower, *filter(None, (one.upper, one.work))]
    return {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in dict.fromkeys(paths)}


def _mount_overlay(overlay: Overlay, opened: Mapping[str, int], at: str) -> None:
    lower = ":".join(_descriptor(opened[path]) for path in reversed(overlay.lower))
    options = f"userxattr,lowerdir={lower}"
    if overlay.upper:
        options += (
            f",upperdir={_descriptor(opened[overlay.upper])},workdir={_descriptor(opened[overlay.work])}"
        )
    _check(
        _libc().mount(b"overlay", os.fsencode(at), b"overlay", _NO_SUID | _NO_DEVICES, options.encode()),
        overlay.path,
    )


def _mount_bind(source: str, at: str, path: str) -> None:
    _check(_libc().mount(source.encode(), os.fsencode(at), None, _BIND | _RECURSIVE, None), path)


def _make_like(opened: int, at: str) -> None:
    if stat.S_ISDIR(os.fstat(opened).st_mode):
        os.mkdir(at)
    else:
        os.close(os.open(at, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _descriptor(number: int) -> str:
    return f"/proc/self/fd/{number}"


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _check(returned: int, what: str) -> None:
    if returned != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
