"""Hold the directories of several files at once, so that what is found of them stays true (R20)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import Target, is_at
from lcp_engine.sandbox.root import Root, refusal

_TRIES = 100


class Place(NamedTuple):
    """A file by its path beneath a root."""

    root: Root
    path: str


Found: TypeAlias = Target | LcpError
"""A file in a directory that is locked, or why its directory cannot be entered."""


@contextmanager
def locked_together(places: Sequence[Place]) -> Iterator[list[Found]]:
    """Like `locked` for all of `places` at once, in their order; no directory is made.

    Everybody who locks several takes them in the order of their device and inode numbers, so that two never wait for
    each other. Raises `LcpError` where the file system refuses a lock.
    """
    for _ in range(_TRIES):
        held = _lock_all(places)
        try:
            if held.is_current(places):
                yield [held.of(place) for place in places]
                return
        finally:
            held.release()
    raise LcpError(
        ErrorCode.FILE_SYSTEM, f"{len(places)} directories were moved or replaced {_TRIES} times meanwhile"
    )


_Key: TypeAlias = "tuple[str, str]"


@dataclass(frozen=True)
class _Held:
    """Directories by root and path: descriptors that are locked, or why there is none."""

    opened: dict[_Key, int | LcpError]

    def of(self, place: Place) -> Found:
        found = self.opened[_key(place)]
        if isinstance(found, LcpError):
            return found
        return Target(place.path, found)

    def is_current(self, places: Sequence[Place]) -> bool:
        """Whether what was opened before the locks were held is still what the paths name."""
        for place in places:
            found = self.opened[_key(place)]
            try:
                if isinstance(found, LcpError):
                    os.close(place.root.open_directory(_parent(place)))
                    return False
                if not is_at(place.root, _parent(place), found):
                    return False
            except OSError:
                if not isinstance(found, LcpError):
                    return False
        return True

    def release(self) -> None:
        for found in self.opened.values():
            if isinstance(found, int):
                os.close(found)  # and with it goes the lock


def _lock_all(places: Sequence[Place]) -> _Held:
    held = _Held({})
    try:
        for place in places:
            if _key(place) not in held.opened:
                held.opened[_key(place)] = _open(place)
        inodes: dict[tuple[int, int], int] = {}
        for found in held.opened.values():
            if isinstance(found, int):
                status = os.fstat(found)
                # Two paths may lead to one directory (roots may overlap); a second lock would wait for the first.
                inodes.setdefault((status.st_dev, status.st_ino), found)
        for _, descriptor in sorted(inodes.items()):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        held.release()
        raise refusal(error, ".") from error
    except BaseException:
        held.release()
        raise
    return held


def _open(place: Place) -> int | LcpError:
    try:
        return place.root.open_directory(_parent(place))
    except OSError as error:
        return refusal(error, place.path)


def _parent(place: Place) -> str:
    return place.path.rpartition("/")[0]


def _key(place: Place) -> _Key:
    return place.root.path, _parent(place)
