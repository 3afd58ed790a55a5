"""Open the directories of a tree one after the other, following no link, however deep they lie."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULLY = 0o700
_MOST_OPEN = 48
_EVERY = 96
"""Of those further up, one in so many stays open."""


class Trail:
    """Opens directories beneath `top`, an open directory, each from the innermost one above it that is still open.

    Paths end in "/", but for "", which is `top` itself. With `opens_all` a directory of this user that is closed to
    them is made accessible first; `closed` has its mode then, and `close` puts it back.
    """

    def __init__(self, top: int, *, opens_all: bool = False) -> None:
        self._top, self._opens_all = top, opens_all
        self._open: list[tuple[str, int]] = []
        self.closed: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self, path: str) -> int:
        """A descriptor of the directory, which stays open until the next call. Raises OSError."""
        while self._open and not path.startswith(self._open[-1][0]):
            os.close(self._open.pop()[1])
        above, here = self._open[-1] if self._open else ("", self._top)
        for name in path[len(above) :].split("/")[:-1]:
            above = f"{above}{name}/"
            here = self._step(here, name, above)
            self._open.append((above, here))
            self._thin_out()
        return here

    def has(self, path: str) -> bool:
        """True if the directory is there and can be opened."""
        try:
            self.open(path)
        except OSError:
            return False
        return True

    def _step(self, here: int, name: str, path: str) -> int:
        if not self._opens_all:
            return os.open(name, DIRECTORY, dir_fd=here)
        mode = stat.S_IMODE(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
        if mode & _FULLY == _FULLY:
            return os.open(name, DIRECTORY, dir_fd=here)
        there, _ = open_fully(name, here)
        self.closed.setdefault(path, mode)
        return there

    def _thin_out(self) -> None:
        at = len(self._open) - _MOST_OPEN
        if at >= 0 and self._open[at][0].count("/") % _EVERY:
            os.close(self._open.pop(at)[1])

    def close(self) -> None:
        """Close every descriptor but that of `top`, after modes were put back, those of inner directories first."""
        closed, self.closed = self.closed, {}
        for path in sorted(closed, key=lambda one: (-one.count("/"), one)):
            with suppress(OSError):
                os.fchmod(self.open(path), closed[path])
        while self._open:
            os.close(self._open.pop()[1])


def statuses_below(trail: Trail) -> Iterator[os.stat_result]:
    """Status of everything beneath the top of a trail that can be listed, and is not removed meanwhile."""
    waiting = [""]
    while waiting:
        above = waiting.pop()
        with suppress(OSError):
            here = trail.open(above)
            for name in os.listdir(here):
                with suppress(OSError):
                    status = os.stat(name, dir_fd=here, follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(f"{above}{name}/")
                    yield status


def open_fully(name: str, directory: int) -> tuple[int, int]:
    """A descriptor of a directory of this user, which may be read and changed from now on, and its mode before.

    Raises OSError.
    """
    seen = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = stat.S_IMODE(os.fstat(seen).st_mode)
        if mode & _FULLY != _FULLY:
            with suppress(OSError):  # root may do without
                os.chmod(f"/proc/self/fd/{seen}", mode | _FULLY)
        return os.open(f"/proc/self/fd/{seen}", DIRECTORY & ~os.O_NOFOLLOW), mode
    finally:
        os.close(seen)


def open_file(name: str, directory: int, *, opens_all: bool = False) -> int:
    """A descriptor to read a regular file. With `opens_all` the mode of a closed one is changed for a moment.

    Raises OSError. A FIFO or device that has taken its place is not waited for.
    """
    try:
        return os.open(name, _FILE, dir_fd=directory)
    except PermissionError:
        if not opens_all:
            raise
    seen = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = stat.S_IMODE(os.fstat(seen).st_mode)
        itself = f"/proc/self/fd/{seen}"
        os.chmod(itself, mode | stat.S_IRUSR)
        try:
            return os.open(itself, _FILE & ~os.O_NOFOLLOW)
        finally:
            os.chmod(itself, mode)
    finally:
        os.close(seen)


_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
