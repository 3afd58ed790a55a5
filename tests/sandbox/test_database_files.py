"""No job releases the locks of the engine's own database.

They are POSIX locks: they go with the first descriptor of the file that this process closes. So a file that is found to
be the database must not have been opened.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.sandbox.conftest import open_descriptors

from lcp_engine.api.engine import Engine
from lcp_engine.core.policy import Policy, Rule, Verdict
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.authoring.run_job import run_job
from lcp_engine.sandbox.entries import read_unlocked
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.database_files import OwnFiles
from lcp_engine.sandbox.system.syscalls import has_openat2
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import open_database

ANOTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute(sys.argv[2])
    connection.execute("CREATE TABLE stolen (n)")
except sqlite3.OperationalError as error:
    print(error)
"""
"""Another process that wants the database; when it ends, SQLite removes the log if no other process holds a lock."""
FILES = ["lcp.db", "lcp.db-wal", "lcp.db-shm"]


def said_to_another(database: Path, statement: str) -> str:
    command = [sys.executable, "-c", ANOTHER, str(database), statement]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def database(place: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{place / 'lcp.db'}")
    yield opened
    opened.close()


@pytest.fixture(params=["symlink", "hard link", "name"])
def named(request: pytest.FixtureRequest, place: Path) -> Callable[[str], str]:
    """Names one of the files: by a link of either sort, or as it is called."""

    def name(file: str) -> str:
        if request.param == "symlink":
            (place / "src" / "l").symlink_to(f"../{file}")
        elif request.param == "hard link":
            os.link(place / file, place / "src" / "l")
        else:
            return file
        return "src/l"

    return name


@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "walk"])
@pytest.mark.parametrize("file", FILES)
def test_no_other_process_gets_the_write_lock_while_a_job_names_the_database(
    database: Database, place: Path, named: Callable[[str], str], file: str, *, kernel: bool
) -> None:
    if kernel and not has_openat2():
        pytest.skip("this kernel has no openat2")
    path = named(file)
    anything = Policy(user_rules=[Rule(kinds=("*",), paths=(path,), do=Verdict.AUTO)])
    with Root(place, kernel=kernel) as root:

        def read(tx: object) -> list[str | None]:
            codes = [
                done.error.error_code if done.error else None
                for done in (
                    run_job("read_file", {"rel_path": path}, root, policy=anything) for _ in range(3)
                )
            ]
            with pytest.raises(LcpError) as refused:
                read_unlocked(root, path, None)
            codes.append(refused.value.code)
            codes.append(said_to_another(place / "lcp.db", "BEGIN IMMEDIATE"))
            return codes

        assert database.write(read) == ["PATH_DENIED"] * 4 + ["database is locked"]
        assert "locked" in said_to_another(place / "lcp.db", "PRAGMA journal_mode=DELETE")
        assert (place / "lcp.db-wal").exists(), "the other process thought that it was the last one"


def test_a_mission_that_reads_its_own_database_through_a_link_keeps_its_locks(place: Path) -> None:
    for number, file in enumerate(FILES):
        (place / f"l{number}").symlink_to(file)
    reads: list[JsonValue] = [
        {"name": "r", "kind": "read_file", "params": {"rel_path": f"l{n}"}} for n in range(len(FILES))
    ]
    spec: dict[str, JsonValue] = {
        "name": "m",
        "goal": "g",
        "accept": [{"file_exists": "l0"}],
        "planner": {
            "type": "script",
            "replies": [
                {"ok": True, "action": "create_followup_jobs", "new_jobs": reads},
                {"ok": True, "action": "mission_complete", "summary": "done"},
            ],
        },
    }
    with Engine(f"sqlite:///{place / 'lcp.db'}") as engine:
        mission = engine.launch(spec, root=place)
        engine.work(until_idle=True)
        read = [job for job in engine.jobs(mission_id=mission.id) if job.kind == "read_file"]
        assert [job.error and job.error["error_code"] for job in read] == ["PATH_DENIED"] * len(FILES)
        assert "locked" in said_to_another(place / "lcp.db", "PRAGMA journal_mode=DELETE")
        assert (place / "lcp.db-wal").exists()


def test_at_most_one_descriptor_of_a_root_stays_open(database: Database, place: Path) -> None:
    """A hard link is found out only once it is open; then the root looks before it opens."""
    os.link(place / "lcp.db", place / "h")
    with Root(place) as root:
        with pytest.raises(LcpError, match="own database"):
            root.open_file("h")
        left = open_descriptors()
        for _ in range(10):
            with pytest.raises(LcpError) as refused:
                root.open_file("h")
            assert refused.value.code is ErrorCode.PATH_DENIED
        assert open_descriptors() == left
        os.close(root.open_file("a.txt").descriptor)
        (place / "l").symlink_to("a.txt")
        assert open_descriptors() == left
        if root.kernel:
            opened = root.open_file("l")
            assert opened.path == "a.txt"
            os.close(opened.descriptor)


def test_a_search_past_hard_links_of_the_database_keeps_its_locks(database: Database, place: Path) -> None:
    for name in ("h1", "h2"):
        os.link(place / "lcp.db", place / name)
    with Root(place) as root:

        def search(tx: object) -> tuple[JsonValue, str]:
            found = run_job("search_files", {"text": "SQLite"}, root).result
            assert isinstance(found, dict)
            return found["skipped"], said_to_another(place / "lcp.db", "BEGIN IMMEDIATE")

        skipped, said = database.write(search)
    assert skipped == [
        f"{name!r} leads to the engine's own database, which no job may touch"
        for name in ("h1", "h2", "lcp.db", "lcp.db-shm", "lcp.db-wal")
    ]
    assert said == "database is locked"


def test_a_copy_of_the_database_is_a_file_like_any_other(database: Database, place: Path) -> None:
    (place / "copy").write_bytes((place.parent / "outside" / "secret.txt").read_bytes())
    (place / "l").symlink_to("copy")
    with Root(place) as root:
        os.close(root.open_file("copy").descriptor)
        if root.kernel:
            os.close(root.open_file("l").descriptor)


def test_a_database_that_is_gone_is_forgotten_when_another_is_opened(tmp_path: Path) -> None:
    own = OwnFiles()
    for name in ("first.db", "second.db"):
        (tmp_path / name).write_bytes(b"")
        own.add(tmp_path / name)
    (tmp_path / "first.db").unlink()
    own.add(tmp_path / "second.db")
    assert own.beneath(str(tmp_path)) == {"second.db", "second.db-wal", "second.db-shm"}
