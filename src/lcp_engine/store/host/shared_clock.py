"""Give all processes that use a SQLite file the same time, also those that were started before the machine slept."""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path

from lcp_engine.clock import Micros, since_start, system_clock

_BYTES = 8


class SharedClock:
    """The time since the machine was started, plus an offset in a file that all processes map into memory.

    The offset follows the system's clock forward only, so that time never goes back; the first process to open the
    file while no other has it open sets it anew. Raises OSError if the file cannot be made or mapped.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # A full disk is an error here, and not a signal at the first write.
            os.posix_fallocate(self._descriptor, 0, _BYTES)
            self._words = memoryview(mmap.mmap(self._descriptor, _BYTES)).cast("q")
            with suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._words[0] = system_clock() - since_start()
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __call__(self) -> Micros:
        system, running = (
            system_clock(),
            since_start(),
        )  # in this order: a stop in between makes the offset smaller
        offset: Micros = self._words[0]
        if system - running > offset:
            self._words[0] = offset = system - running
        return running + offset

    def close(self) -> None:
        """Stop using the file. The clock still tells the time."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


def open_shared_clock(path: Path) -> SharedClock | None:
    """The clock at `path`; None if this machine cannot have one."""
    try:
        return SharedClock(path)
    except OSError:
        return None
