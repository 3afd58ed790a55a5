"""A disk that is full during a backup: nothing half of it stays, the failure is said, and the next one works."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from tests.faults.places import Memory, no_mounts

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.features.upkeep.chores import Housekeeper
from lcp_engine.features.upkeep.settings import Duty
from lcp_engine.features.upkeep.store.backup import back_up
from lcp_engine.features.upkeep.store.upkeep import UpkeepRow, duties
from lcp_engine.operation import Backups, Upkeep
from lcp_engine.store import queue
from lcp_engine.store.db.database import Database

CLI = [sys.executable, "-m", "lcp_engine"]
MORE_THAN_FITS = 2_000_000


def grow(database: Database) -> None:
    """Rows that compress badly, about `MORE_THAN_FITS` bytes of them."""
    text = os.urandom(MORE_THAN_FITS // 2).hex()
    digest = sha256(text.encode()).hexdigest()
    insert = f"INSERT INTO results (sha256, size, text) VALUES ('{digest}', {len(text)}, '{text}')"
    database.write(lambda tx: tx.plain(insert))


@pytest.mark.skipif(no_mounts() is not None, reason=str(no_mounts()))
def test_a_runner_says_it_once_tries_again_and_leaves_nothing_half(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1_795_000_000 * SECOND
    with ExitStack() as stack:
        disk = Memory(tmp_path / "to", stack, 4096)
        upkeep = Upkeep(backup=Backups(every=timedelta(days=1), to=str(disk.place)))
        engine = stack.enter_context(Engine(database_url, clock=lambda: now, upkeep=upkeep))
        database = engine.instance.database
        grow(database)
        runner = database.write(lambda tx: queue.add_runner(tx, uid="a", host="h", boot="b", pid=1))
        housekeeper = Housekeeper(engine.instance, runner, lambda: False)

        def backed_up() -> UpkeepRow:
            for one in housekeeper.rounds():
                housekeeper.do(one)
            return database.read(duties)[Duty.BACKUP]

        disk.fill()
        with caplog.at_level(logging.WARNING):
            row = backed_up()
            assert backed_up() == row, "not before its time"
        (record,) = caplog.records
        assert str(row.error) in record.getMessage()
        assert str(disk.place) in str(row.error)
        assert "No space left" in str(row.error) or "0 B are free; SQLite says" in str(row.error)
        assert [path.name for path in disk.place.iterdir()] == ["filler"]
        now = row.next_at
        disk.free()
        row = backed_up()
        assert (row.error, row.failures) == (None, 0)
        (file,) = disk.place.iterdir()
        if database_url.startswith("sqlite"):
            assert check_database(f"sqlite:///{file}") == []


def test_a_backup_that_may_not_grow_blames_its_directory_and_not_the_database(tmp_path: Path) -> None:
    database, copy = tmp_path / "lcp.db", tmp_path / "to" / "copy.db"
    with Engine(f"sqlite:///{database}") as engine:
        grow(engine.instance.database)
    copy.parent.mkdir()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MORE_THAN_FITS // 2, MORE_THAN_FITS // 2))

    command = [*CLI, "--db", f"sqlite:///{database}", "db", "backup", str(copy)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)
    assert said.returncode == 1
    needed = f"{database.stat().st_size / 1e6:.1f} MB"
    assert said.stderr.startswith(f"a backup needs {needed} in {str(copy.parent)!r}, where ")
    assert said.stderr.endswith(" are free; SQLite says: disk I/O error\n")
    assert [*copy.parent.iterdir()] == []
    assert back_up(f"sqlite:///{database}", copy) == copy.stat().st_size
