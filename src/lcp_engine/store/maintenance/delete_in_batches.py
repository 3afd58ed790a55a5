"""Remove many rows in transactions so short that nobody waits long for one.

A transaction ends after some milliseconds of work, whatever it has removed by then, and after a quarter of that where
somebody waits in line, who comes next. What SQLite has in its WAL is brought into the file between transactions while
others write, and seldom while they have to wait, so that the WAL can begin anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Connection, Tx

K = TypeVar("K")
Watch: TypeAlias = Callable[[], float]

SECONDS = {"sqlite": 0.002, "postgresql": 0.01}
"""How long a transaction works. With PostgreSQL nobody waits for it, but for what its log holds of it by then."""
_PIECES = 4
"""Pieces of a transaction at least, so that it ends in time: after the first one where others wait."""
_TICK = 1e-6
_MOST_KEYS = 2048
"""At once; large rows take longer, and then there are fewer."""
_BETWEEN_FLUSHES = 12
"""Transactions; together they leave less in the WAL than makes another writer's commit bring it into the file."""


@dataclass(frozen=True)
class Work(Generic[K]):
    """What goes: `remove` is called with some of the keys after the other and says how many rows went."""

    keys: Sequence[K]
    remove: Callable[[Tx, Sequence[K]], int]


@contextmanager
def sweep(database: Database, watch: Watch = time.perf_counter) -> Iterator[Sweep]:
    """Remove rows beside others that use the database, through a connection of its own; `watch` tells seconds.

    What was removed is on the disk after the next `Database.write`; until then a power cut may bring some of it back.
    """
    own = Database(database.backend.sweeping(), database.now)
    own.line = database.line.another()
    try:
        with closing(own.backend.connect()) as flushing:
            yield Sweep(own, flushing, watch)
    finally:
        own.close()


class _Place(NamedTuple):
    """Where to go on: at a key of a work, with so many keys at once."""

    work: int
    key: int
    size: int


class Sweep:
    """Removes rows of one database; `sweep` makes it."""

    def __init__(self, database: Database, flushing: Connection, watch: Watch) -> None:
        self._watch = watch
        self._database = database
        self._flushing = flushing
        self._since_flush = 0
        self._seconds = SECONDS[database.backend.name]

    def remove(self, works: Sequence[Work[K]]) -> int:
        """Do all of it; the number of rows that went."""
        count, place = 0, _Place(0, 0, 1)
        while place.work < len(works):
            done, place = self._database.write(partial(self._go_on, works=works, place=place))
            count += done
            self._flush_at_times()
        return count

    def _go_on(self, tx: Tx, works: Sequence[Work[K]], place: _Place) -> tuple[int, _Place]:
        """Remove until the time is over: how much went, and where to go on."""
        count, began = 0, self._watch()
        (work, key, size), until = place, began
        while work < len(works) and until - began < self._seconds:
            since, keys = until, works[work].keys
            if keys:
                count += works[work].remove(tx, keys[key : key + size])
            until = self._watch()
            work, key = (work, key + size) if key + size < len(keys) else (work + 1, 0)
            took = max(until - since, _TICK)
            size = max(1, min(_MOST_KEYS, 2 * size, int(size * self._seconds / _PIECES / took)))
            if self._database.line.is_wanted:
                break
        return count, _Place(work, key, size)

    def _flush_at_times(self) -> None:
        self._since_flush += 1
        if self._since_flush < _BETWEEN_FLUSHES:
            return
        self._since_flush = 0
        flush = self._database.backend.flush
        if flush(self._flushing):
            with self._database.line:  # what others wrote meanwhile is little
                flush(self._flushing)
