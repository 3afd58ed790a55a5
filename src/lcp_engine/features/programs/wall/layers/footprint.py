"""Count the room that a program takes beside its processes: what it writes, and files that have no names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from lcp_engine.features.programs.wall.layers.trail import DIRECTORY, Trail, statuses_below

_LEAST_BYTES = 4096
_LEAST_SECONDS = 0.25
_REST = 20
"""A search takes no more than a part of the time: one of so many."""
_IN_MEMORY = "/memfd:"


class Footprint:
    """Room that a program takes, counted now and then. What it writes lies below `places`.

    `segments` is the open /proc/sysvipc/shm of its namespace.
    """

    def __init__(self, places: Sequence[str]) -> None:
        self._places = places
        self.segments: int | None = None
        self._below, self._memory, self._disk = _Slow(), _Slow(), _Slow()

    def unmapped_bytes(self, family: Collection[int]) -> int:
        """Memory in files that these processes have open (memfd_create(2)), and in segments that need no process."""
        return self._memory.count(lambda: _nameless(family, in_memory=True) + self._segment_bytes())

    def written_bytes(self, family: Collection[int]) -> int:
        """Bytes on the disk, with those of files that were removed and that these processes have open."""
        below = self._below.count(lambda: sum(map(_bytes_below, self._places)))
        return below + self._disk.count(lambda: _nameless(family, in_memory=False))

    def _segment_bytes(self) -> int:
        """Memory of shared segments (shmget(2)), attached or not, in RAM (the last column but one) or swapped out."""
        if self.segments is None:
            return 0
        os.lseek(self.segments, 0, os.SEEK_SET)
        with open(self.segments, "rb", closefd=False) as table:
            return sum(sum(map(int, line.split()[-2:])) for line in table.readlines()[1:])


class _Slow:
    """A count that takes long, and is repeated only so often that it takes a small part of the time."""

    def __init__(self) -> None:
        self._next = 0.0
        self._last = 0

    def count(self, look: Callable[[], int]) -> int:
        began = time.monotonic()
        if began >= self._next:
            self._last = look()
            took = time.monotonic() - began
            self._next = began + max(_LEAST_SECONDS, took * _REST)
        return self._last


def _nameless(family: Collection[int], *, in_memory: bool) -> int:
    found: dict[tuple[int, int], int] = {}
    for process in family:
        with suppress(OSError), os.scandir(f"/proc/{process}/fd") as opened:
            for one in opened:
                with suppress(OSError):
                    if os.readlink(one.path).startswith(_IN_MEMORY) is in_memory:
                        status = os.stat(one.path)
                        if not status.st_nlink:
                            found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def _bytes_below(directory: str) -> int:
    """Bytes on the disk below a directory that a program writes to meanwhile: links are not followed."""
    with suppress(OSError):
        top = os.open(directory, DIRECTORY)
        try:
            with Trail(top) as trail:
                return sum(max(_LEAST_BYTES, status.st_blocks * 512) for status in statuses_below(trail))
        finally:
            os.close(top)
    return 0
