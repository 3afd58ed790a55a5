"""Time what a turn is shown of a memory, beside many entries."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure, Goal
from benchmarks.setting import Setting
from lcp_engine.features.memory.choice import choose, cues_of
from lcp_engine.features.memory.entries import Entry
from lcp_engine.features.memory.store.memories import Origin, add_entry, open_root
from lcp_engine.features.memory.store.queries import find_matches, find_shown
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import open_database
from lcp_engine.store.db.transaction import Tx

SIZES = (1_000, 100_000, 1_000_000)
TIMES = 25
CHARACTERS = 6_000
GOAL = Goal(20, at_least=False, unit="ms")
_OF_ROOT = 100_000
"""The most that one root may have; the others have the rest."""
_AT_ONCE = 5_000
_WORDS = 20_000


def run(setting: Setting) -> list[Figure]:
    """The median for a turn with 24 words and 2 files, with SQLite."""
    return [*memory_figures(setting.place)]


def memory_figures(place: Path | None = None, sizes: Sequence[int] = SIZES) -> Iterator[Figure]:
    for size in sizes:
        with TemporaryDirectory(dir=place) as directory:
            database = open_database(f"sqlite:///{Path(directory) / 'lcp.db'}")
            try:
                root = _fill(database, size)
                spent = statistics.median(_choose(database, root, turn) for turn in range(TIMES))
            finally:
                database.close()
        name = f"a turn's choice from a memory of {size:,} entries, SQLite"
        yield Figure(name, "ms", spent, value=spent, goal=GOAL)


def _fill(database: Database, size: int) -> int:
    """Entries of 40 words, some of them in many; the number of a root with as many as it may have."""
    chance, roots = random.Random(0), range(0, size, _OF_ROOT)
    ids = [database.write(partial(open_root, path=f"/roots/{at}", identity=None)).id for at in roots]

    def add(tx: Tx, first: int) -> None:
        for number in range(first, min(first + _AT_ONCE, size)):
            words = " ".join(f"word{int(chance.paretovariate(0.6)) % _WORDS}" for _ in range(40))
            entry = Entry(
                title=f"Entry {number}",
                content=f"{words} common everywhere",
                files=(f"src/part{number % 500}.py",),
                importance=1 + number % 8,
            )
            add_entry(tx, ids[number // _OF_ROOT], entry, Origin())

    for first in range(0, size, _AT_ONCE):
        database.write(partial(add, first=first))
    return ids[0]


def _choose(database: Database, root: int, turn: int) -> float:
    """The milliseconds of one choice."""
    chance = random.Random(turn)
    text = " ".join(f"word{chance.randrange(_WORDS)}" for _ in range(20))
    texts = [f"{text} word1 word2 common everywhere"]
    files = [f"src/part{chance.randrange(500)}.py" for _ in range(2)]

    def read(tx: Tx) -> int:
        cues = cues_of(texts, files, [])
        found = find_matches(tx, root, cues, mission_id=0)
        return len(find_shown(tx, choose(found, cues, now=tx.now, characters=CHARACTERS)))

    began = time.perf_counter()
    shown = database.read(read)
    spent = (time.perf_counter() - began) * 1000
    assert shown > 0
    return spent
