"""Copying a database into a file, on both kinds."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url

from lcp_engine.api.engine import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.features.upkeep.store.backup import back_up


@pytest.fixture
def engine_url(database_url: str) -> str:
    with Engine(database_url) as engine:
        engine.enqueue("ask_user", {"question": "Which?"})
    return database_url


def _restored(url: str, file: Path, target: str) -> str:
    """The URL of the database that a backup of `url` is."""
    if url.startswith("sqlite"):
        return f"sqlite:///{file}"
    subprocess.run(["pg_restore", "--no-owner", f"--dbname={target}", str(file)], check=True)
    return target


def test_a_backup_is_a_whole_database_of_this_user_alone(
    engine_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = tmp_path / "copy"
    assert back_up(engine_url, file) == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    target = "" if engine_url.startswith("sqlite") else request.getfixturevalue("new_postgres_url")
    restored = _restored(engine_url, file, target)
    assert check_database(restored) == []
    with Engine(restored) as engine:
        assert [job.params for job in engine.jobs()] == [{"question": "Which?"}]


def test_a_backup_has_the_schedules(
    database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with Engine(database_url) as engine:
        spec: JsonValue = {"goal": "g", "planner": "human"}
        assert isinstance(spec, dict)
        added = engine.add_schedule("daily", spec, root=tmp_path, cron="0 7 * * *", timezone="Europe/Zurich")
        engine.launch_scheduled("daily")
        stored = engine.schedule("daily")
    assert stored.json == {**added.json, "mission": {"id": 1, "status": "running", "outcome": None}}
    back_up(database_url, tmp_path / "copy")
    target = "" if database_url.startswith("sqlite") else request.getfixturevalue("new_postgres_url")
    restored = _restored(database_url, tmp_path / "copy", target)
    assert check_database(restored) == []
    with Engine(restored) as engine:
        assert engine.schedule("daily") == stored


def test_a_file_that_is_there_is_left_alone_unless_forced(engine_url: str, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    file.write_text("mine")
    with pytest.raises(LcpError, match="exists already") as refused:
        back_up(engine_url, file)
    assert refused.value.code is ErrorCode.WRONG_STATE
    assert file.read_text() == "mine"
    back_up(engine_url, file, force=True)
    assert file.stat().st_size > 1000
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_database_is_never_its_own_backup(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    Engine(url).close()
    for name in ("lcp.db", "lcp.db-wal"):
        with pytest.raises(LcpError, match="is the database itself"):
            back_up(url, tmp_path / name, force=True)
    assert check_database(url) == []


def test_a_backup_that_cannot_be_written_is_explained(engine_url: str, tmp_path: Path) -> None:
    with pytest.raises(LcpError, match="needs its directory"):
        back_up(engine_url, tmp_path / "missing" / "copy")
    with pytest.raises(LcpError, match="is a directory"):
        back_up(engine_url, tmp_path)


def test_a_missing_pg_dump_is_named(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Engine(postgres_url).close()
    monkeypatch.setattr("lcp_engine.features.upkeep.store.backup._DEBIAN", tmp_path / "nothing")
    with pytest.raises(LcpError, match="needs pg_dump on PATH") as refused:
        back_up(postgres_url, tmp_path / "copy", environment={"PATH": str(tmp_path)})
    assert refused.value.code is ErrorCode.DATABASE_FAILED
    assert not (tmp_path / "copy").exists()


def test_a_password_is_no_argument_of_pg_dump(postgres_url: str, tmp_path: Path) -> None:
    Engine(postgres_url).close()
    spy = tmp_path / "pg_dump"
    spy.write_text('#!/bin/sh\necho "$PGPASSWORD | $*" >&2\nexit 1\n')
    spy.chmod(0o755)
    url = f"{postgres_url}?password=sesame"
    with pytest.raises(LcpError, match=r"it says: sesame \|") as refused:
        back_up(
            url, tmp_path / "copy", environment={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        )
    assert "sesame" not in str(refused.value).partition("|")[2]


def test_writers_go_on_while_a_backup_is_made(engine_url: str, tmp_path: Path) -> None:
    is_done = threading.Event()
    written = 0
    with Engine(engine_url) as engine:

        def copy() -> None:
            try:
                back_up(engine_url, tmp_path / "copy")
            finally:
                is_done.set()

        copying = threading.Thread(target=copy)
        copying.start()
        while not is_done.is_set() or written < 3:
            engine.enqueue("ask_user", {"question": "Which?"})
            written += 1
        copying.join()
        assert len(engine.jobs()) == written + 1
    assert check_database(engine_url) == []
    assert (tmp_path / "copy").exists()
