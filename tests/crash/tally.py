"""Count the commits of many processes and their longest wait, including processes that are killed."""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx

T = TypeVar("T")
SLOTS = 4096
_SLOT = struct.Struct("<qd")


class Tally:
    """A page of memory that forked processes share; each writes to its own slot, which outlives it."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, SLOTS * _SLOT.size)

    def watch(self, database: Database, process: int) -> None:
        """Count what this process, in the slot of that number, writes to `database`."""
        at = process % SLOTS * _SLOT.size
        guard, write = threading.Lock(), database.write

        def watched(work: Callable[[Tx], T]) -> T:
            began = time.monotonic()
            done = write(work)
            waited = time.monotonic() - began
            with guard:
                count, longest = _SLOT.unpack_from(self._shared, at)
                _SLOT.pack_into(self._shared, at, count + 1, max(longest, waited))
            return done

        database.write = watched  # type: ignore[method-assign]  # the engine knows nothing of it

    @property
    def commits(self) -> int:
        return sum(count for count, _ in self._slots())

    @property
    def longest_wait(self) -> float:
        """In seconds, from the request to write until the commit."""
        return max(longest for _, longest in self._slots())

    def _slots(self) -> list[tuple[int, float]]:
        return [(int(count), float(longest)) for count, longest in _SLOT.iter_unpack(self._shared)]
