"""Tell whether a root is still the directory that its mission was launched over (R22)."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self
from weakref import WeakKeyDictionary

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.file_systems import shared_file_system

# linux/magic.h
_OVERLAY = 0x794C7630
_RENUMBERED = frozenset({0x65735546, 0x4D44, 0x2011BAB0, 0x01021997})
"""FUSE, FAT, exFAT and 9P may number a directory anew whenever it is looked up."""
_AT_EMPTY_PATH, _STATX_BTIME = 0x1000, 0x800
_STATX_SIZE, _STATX_BTIME_AT = 256, 80

_PUT_BACK = "Put the directory back that was there, or accept the new one with `lcp resume M --root DIR`."


@dataclass(frozen=True, slots=True)
class RootIdentity:
    """Which directory something is, as far as its file system can tell for good; None for what it cannot.

    Device numbers are left out: those of btrfs, NFS and overlays change when the machine starts again.
    """

    machine: str
    filesystem: int
    inode: int | None
    born: int | None
    """When the directory was created, in nanoseconds."""

    @classmethod
    def of(cls, descriptor: int) -> Self:
        """The identity of an open directory. Raises OSError."""
        filesystem = _filesystem_of(descriptor)
        inode = None if filesystem in _RENUMBERED else os.fstat(descriptor).st_ino
        # An overlay copies a directory of a lower layer, and then gives the time of the copy.
        born = None if filesystem == _OVERLAY else _birth_of(descriptor)
        return cls(this_machine(), filesystem, inode, born)

    @classmethod
    def read(cls, text: str) -> Self:
        """The identity that `text` made into a text."""
        machine, filesystem, inode, born = text.split(":")
        return cls(machine, int(filesystem), int(inode) if inode else None, int(born) if born else None)

    @property
    def text(self) -> str:
        inode, born = ("" if one is None else str(one) for one in (self.inode, self.born))
        return f"{self.machine}:{self.filesystem}:{inode}:{born}"

    def matches(self, found: RootIdentity) -> bool:
        """True if a directory of the same machine can be this one."""
        facts = ((self.inode, found.inode), (self.born, found.born))
        return self.filesystem == found.filesystem and all(
            known == new for known, new in facts if known is not None and new is not None
        )

    def shares_files_with(self, other: RootIdentity) -> bool:
        """True if one path of a file means the same file in both: on one machine it does.

        A container that starts again may call itself another machine, and a disk may move to one: a directory with the
        inode number and the time of creation, both known, is the same one there.
        """
        if self.machine == other.machine:
            return True
        is_known = None not in (self.inode, self.born, other.inode, other.born)
        return is_known and self.matches(other)


class Elsewhere(LcpError):
    """The directory at the path of a root is not the one that was changed: that one is on another machine."""


@dataclass(frozen=True, slots=True)
class KnownRoot:
    """The root of a mission as it is stored: its path, and which directory it was, None if that was not recorded.

    `changed` is the directory in which the change was made that the root is opened for, if that is known.
    """

    mission_id: int
    path: str
    identity: RootIdentity | None
    changed: RootIdentity | None = None

    @property
    def is_from_here(self) -> bool:
        """True if its identity was recorded on this machine, and so can be compared."""
        return self.identity is not None and self.identity.machine == this_machine()


def identity_at(path: str | os.PathLike[str]) -> RootIdentity | None:
    """The identity of the directory at `path`, None if it cannot be opened; a link is not followed."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return RootIdentity.of(descriptor)
    finally:
        os.close(descriptor)


def open_known(known: KnownRoot) -> Root:
    """The root of a mission, opened.

    Raises `ROOT_CHANGED` if a link or another directory is in its place, `PATH_NOT_FOUND` if nothing is, `Elsewhere` if
    the change that it is opened for was made on another machine.
    """
    try:
        root = Root(known.path)
    except LcpError as error:
        if error.code is not ErrorCode.PATH_NOT_FOUND:
            raise
        message = f"root {known.path!r} does not exist; {_accepts(known.mission_id, 'DIR')} another one"
        advice = "Put the root back, or name the directory where it is now."
        raise LcpError(error.code, message, advice=advice) from error
    try:
        if root.path != known.path:
            fact = f"root {known.path!r} is or passes a symbolic link now, which leads to {root.path!r}"
            message = f"{fact}; {_accepts(known.mission_id, 'DIR')} another root"
            raise LcpError(ErrorCode.ROOT_CHANGED, message, advice=_PUT_BACK)
        if known.is_from_here:
            assert known.identity is not None
            check_same(known, known.identity, root)
        _check_is_here(known, root)
    except BaseException:
        root.close()
        raise
    return root


def is_in_place(known: KnownRoot) -> bool:
    """True if a mission's root can be opened, and is the directory that it was."""
    try:
        open_known(known).close()
    except LcpError:
        return False
    return True


def check_same(known: KnownRoot, expected: RootIdentity, root: Root) -> None:
    """Raises `ROOT_CHANGED` unless an open root is the directory that is expected."""
    if expected.matches(RootIdentity.of(root.descriptor)):
        return
    fact = f"root {root.path!r} is another directory now than the one of mission {known.mission_id}"
    message = f"{fact}; {_accepts(known.mission_id, shlex.quote(root.path))} it"
    raise LcpError(ErrorCode.ROOT_CHANGED, message, advice=_PUT_BACK)


def _check_is_here(known: KnownRoot, root: Root) -> None:
    changed = known.changed
    if changed is None or changed.shares_files_with(RootIdentity.of(root.descriptor)):
        return
    fact = f"root {root.path!r} is not where mission {known.mission_id} changed files: that is on another machine"
    message = f"{fact}; {_accepts(known.mission_id, shlex.quote(root.path))} this one"
    raise Elsewhere(
        ErrorCode.ROOT_CHANGED, message, advice="Do it on the machine whose runner made the change."
    )


_places: WeakKeyDictionary[Root, str] = WeakKeyDictionary()


def place_of(root: Root) -> str:
    """The identity of an open root as a text, found once."""
    place = _places.get(root)
    if place is None:
        place = _places[root] = RootIdentity.of(root.descriptor).text
    return place


_networks: WeakKeyDictionary[Root, bool] = WeakKeyDictionary()


def is_on_network(root: Root) -> bool:
    """True if other machines may write to the root; their locks exclude nobody here. Looked up once for each root."""
    known = _networks.get(root)
    if known is None:
        known = _networks[root] = shared_file_system(Path(root.path)) is not None
    return known


def is_same_place(one: str | None, other: str | None) -> bool:
    """True if a path means the same file in two places, the texts of identities; where one is not known, it does."""
    if one is None or other is None or one == other:
        return True
    return RootIdentity.read(one).shares_files_with(RootIdentity.read(other))


def number_places(places: Iterable[str | None]) -> Mapping[str | None, int]:
    """The same number for places that are the same; those that are not known count to the first."""
    different: list[str] = []
    numbers: dict[str | None, int] = {None: 0}
    for place in places:
        if place in numbers:
            continue
        same = (n for n, known in enumerate(different) if is_same_place(known, place))
        numbers[place] = next(same, len(different))
        if numbers[place] == len(different):
            different.append(str(place))
    return numbers


def _accepts(mission_id: int, directory: str) -> str:
    return f"`lcp resume {mission_id} --root {directory}` accepts"


@cache
def this_machine() -> str:
    """Text that tells this machine from others: inode numbers mean nothing on another one.

    A hash, since the id of a machine is confidential (machine-id(5)); containers of one image differ by their names.
    """
    file = Path("/etc/machine-id")
    try:
        number = file.read_text().strip()
    except OSError:
        number = ""
    return hashlib.sha256(f"lcp-engine {number} {socket.gethostname()}".encode()).hexdigest()[:16]


@cache
def _c_library() -> ctypes.CDLL:
    """The C library; opening it builds a class, which takes longer than a call."""
    return ctypes.CDLL(None, use_errno=True)


def _filesystem_of(descriptor: int) -> int:
    """The magic number of a file system; 0 where it is not known."""
    if sys.platform != "linux":
        return 0
    # struct statfs has half of that size, and begins with the number.
    found = ctypes.create_string_buffer(_STATX_SIZE)
    if _c_library().fstatfs(descriptor, found) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int.from_bytes(found.raw[:8], sys.byteorder) & 0xFFFFFFFF


def _birth_of(descriptor: int) -> int | None:
    """When a directory was created, in nanoseconds; None if the file system does not record it."""
    statx = getattr(_c_library(), "statx", None) if sys.platform == "linux" else None
    if statx is None:
        return None
    found = ctypes.create_string_buffer(_STATX_SIZE)
    if statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return None
    if not int.from_bytes(found.raw[:4], sys.byteorder) & _STATX_BTIME:
        return None
    seconds = int.from_bytes(found.raw[_STATX_BTIME_AT:][:8], sys.byteorder, signed=True)
    return seconds * 1_000_000_000 + int.from_bytes(found.raw[_STATX_BTIME_AT + 8 :][:4], sys.byteorder)
