"""`lcp db`, and databases that cannot be used."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def test_the_default_database_is_a_private_file_of_the_user(lcp: Lcp) -> None:
    lcp("missions", LCP_DATABASE_URL="")
    directory = lcp.home / "data" / "lcp-engine"
    assert lcp("db", "path", LCP_DATABASE_URL="").out == f"{directory / 'lcp.db'}\n"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "lcp.db").stat().st_mode) == 0o600


def test_path_tells_no_password(lcp: Lcp) -> None:
    done = lcp("db", "path", "--db", "postgresql://me:secret@host:5432/name")
    assert done.out == "postgresql://me@host:5432/name\n"


def test_upgrade_creates_and_then_leaves_alone(lcp: Lcp) -> None:
    assert "was created at version" in lcp("db", "upgrade").out
    assert " is at version" in lcp("db", "upgrade").out


def test_stats_counts_the_rows_of_every_table(lcp: Lcp) -> None:
    lcp("launch", lcp.mission(lcp.complete), "--root", "root")
    stats = lcp("db", "stats", "--json").object
    tables = stats["tables"]
    assert isinstance(tables, dict)
    assert isinstance(tables["missions"], dict)
    assert tables["missions"]["rows"] == 1
    assert (stats["missions"], stats["jobs"]) == ({"running": 1}, {"queued": 1})
    shown = lcp("db", "stats").out
    assert "missions  1 running" in shown
    assert "jobs      1 queued" in shown


def test_backup_and_prune_say_what_they_did(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q")
    assert "copy.db has " in lcp("db", "backup", "copy.db").out
    assert lcp("db", "backup", "copy.db").code == 5
    assert lcp("db", "check", "--db", f"sqlite:///{lcp.home / 'copy.db'}").out == "ok\n"
    assert lcp("db", "prune", "--older-than", "0s", "--dry-run").out == "missions to remove: 0\n"
    assert "expects a number with s, m, h, d or w" in lcp("db", "prune", "--older-than", "soon").err


TAMPERING = {
    "DELETE FROM events WHERE seq = 2": "events should be numbered 1 to",
    "UPDATE missions SET events = 99": "it counts 99 events; there are",
    "UPDATE missions SET succeeded = 7": "it counts 7 succeeded jobs; there are",
    "UPDATE plans SET open = 3": "it counts 3 open jobs; there are 0",
    "INSERT INTO events (mission_id, seq, at, event) VALUES (5, 1, 0, 'x')": "refers to a row of missions",
}


def test_check_names_everything_that_is_wrong(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q")
    with closing(sqlite3.connect(lcp.database)) as connection, connection:
        for sql in TAMPERING:
            connection.execute(sql)
    done = lcp("db", "check")
    assert done.code == 1
    for fault in TAMPERING.values():
        assert fault in done.err


def test_check_finds_a_damaged_file(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q")
    with closing(sqlite3.connect(lcp.database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(lcp.database.read_bytes())
    data[4096 * 3 : 4096 * 5] = b"\xff" * 8192
    lcp.database.write_bytes(data)
    done = lcp("db", "check")
    assert done.code == 1
    assert "damaged" in done.err or "malformed" in done.err


def test_check_and_stats_create_nothing(lcp: Lcp) -> None:
    for command in ("check", "stats"):
        done = lcp("db", command)
        assert (done.code, "does not exist" in done.err) == (1, True)
    assert not lcp.database.exists()


@pytest.mark.parametrize("content", ["text", "other tables"])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(lcp: Lcp, content: str) -> None:
    if content == "text":
        lcp.database.write_text("This is a letter to a friend. " * 40)
    else:
        with closing(sqlite3.connect(lcp.database)) as connection:
            connection.execute("CREATE TABLE letters (text)")
    before = lcp.database.read_bytes()
    for command in ("missions", "db check", "db stats", "db upgrade"):
        done = lcp(*command.split())
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert str(lcp.database) in done.err
        assert lcp.database.read_bytes() == before


def test_a_database_of_a_newer_engine_is_refused(lcp: Lcp) -> None:
    lcp("db", "upgrade")
    with closing(sqlite3.connect(lcp.database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    done = lcp("missions", "--json")
    assert (done.code, done.error["error_code"]) == (1, "DATABASE_VERSION")
    assert "'9999'" in str(done.error["user_message"])


def test_a_check_of_an_older_database_says_how_to_go_on(lcp: Lcp) -> None:
    lcp("db", "upgrade")
    with closing(sqlite3.connect(lcp.database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    done = lcp("db", "check")
    assert done.code == 1
    assert done.err.endswith(": `lcp db upgrade` brings it there\n")


def test_a_locked_database_is_waited_for_and_then_named(lcp: Lcp) -> None:
    lcp("db", "upgrade")
    with closing(sqlite3.connect(lcp.database, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        done = lcp.run(
            "launch", lcp.mission(lcp.complete), "--root", "root", "--json", LCP_BUSY_SECONDS="0.1"
        )
    assert (done.code, done.error["error_code"]) == (1, "DATABASE_BUSY")
    assert "locked by another process for 0.1 s" in str(done.error["user_message"])
    assert lcp("db", "check").code == 0


@pytest.mark.parametrize(
    ("url", "code", "fact"),
    [
        ("sqlite:////nowhere/at/all/lcp.db", 1, "needs its directory /nowhere/at/all"),
        ("sqlite:///.", 1, "is a directory; a file is expected"),
        ("mysql://host/name", 2, "begins with 'mysql'"),
        ("lcp.db", 2, "begins with 'lcp.db'"),
        ("sqlite://", 2, "has no file after 'sqlite://'"),
    ],
)
def test_a_database_that_cannot_be_is_explained(lcp: Lcp, url: str, code: int, fact: str) -> None:
    done = lcp("missions", "--db", url)
    assert (done.code, done.err.count("\n")) == (code, 1)
    assert fact in done.err
