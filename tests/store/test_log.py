"""SQLite's log is brought into the file seldom, since somebody waits for that, and does not grow beyond a size."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.conftest import sqlite_url

from lcp_engine import Engine
from lcp_engine.store.db.sqlite import LOG_PAGES
from lcp_engine.store.db.transaction import Tx

SHARE = 100
"""Pages that a commit writes."""


def test_the_log_of_a_database_that_is_written_all_the_time_stays_small(tmp_path: Path) -> None:
    log, frame = tmp_path / "lcp.db-wal", 4096 + 24
    sizes = []
    with Engine(sqlite_url(tmp_path)) as engine:
        write = engine.instance.database.write
        for number in range(3 * LOG_PAGES // SHARE):
            write(partial(_add, name=str(number), size=SHARE * 4096))
            sizes.append(log.stat().st_size // frame)
    assert LOG_PAGES <= max(sizes) < LOG_PAGES + 2 * SHARE


def _add(tx: Tx, name: str, size: int) -> None:
    tx.plain(f"INSERT INTO blobs VALUES ('{name}', {size}, zeroblob({size}), NULL)")
