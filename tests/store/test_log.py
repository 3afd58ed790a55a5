"""SQLite's log is brought into the file seldom, since somebody waits for that, and does not grow beyond a size."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url

from lcp_engine import Engine
from lcp_engine.errors import ErrorCode, LcpError
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


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_process_whose_files_were_removed_writes_nothing_more(tmp_path: Path, ending: str) -> None:
    url = sqlite_url(tmp_path)
    with Engine(url) as engine:
        engine.enqueue("list_files", {})
        (tmp_path / f"lcp.db{ending}").unlink()
        with pytest.raises(
            LcpError, match=f"lcp.db{ending} beside database .* was removed or replaced"
        ) as refused:
            engine.enqueue("list_files", {})
        assert refused.value.code is ErrorCode.DATABASE_FAILED
        others = [sys.executable, "-m", "lcp_engine", "--db", url]
        if ending == "-shm":  # what others write is not written over by the old index
            assert len(_listed(others)) == 1
            with pytest.raises(LcpError, match="was removed or replaced"):
                engine.enqueue("list_files", {})
    if ending == "-shm":
        assert len(_listed(others)) == 1
        subprocess.run([*others, "db", "check"], check=True)


def _listed(lcp: list[str]) -> list[JsonValue]:
    listed: list[JsonValue] = json.loads(subprocess.check_output([*lcp, "--json", "jobs"]))
    return listed


def _add(tx: Tx, name: str, size: int) -> None:
    tx.plain(f"INSERT INTO blobs VALUES ('{name}', {size}, zeroblob({size}), NULL)")
