"""Callers share commits: each takes effect once, a fault is the fault of one, nothing is acknowledged early."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.loaded_python import Python
from tests.patience import wait_until

from lcp_engine.errors import Code, ErrorCode, LcpError
from lcp_engine.store.db.database import Database, Unit, wake_all
from lcp_engine.store.db.open import open_database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of

Open = Callable[[], Database]


@pytest.fixture
def notes(database: Database) -> Database:
    database.write(lambda tx: tx.plain("CREATE TABLE notes (n INTEGER PRIMARY KEY)"))
    return database


def test_every_thread_sees_its_own_write_committed_once(notes: Database, open_another: Open) -> None:
    other = open_another()

    def note(n: int) -> bool:
        notes.write(lambda tx: tx.plain(f"INSERT INTO notes VALUES ({n})"))
        return _stored(other, n)

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(note, range(400)))
    assert _count(other) == 400


def test_a_unit_that_raises_fails_alone(notes: Database) -> None:
    def note(n: int) -> str:
        def work(tx: Tx) -> None:
            tx.plain(f"INSERT INTO notes VALUES ({n})")
            if n % 7 == 0:
                raise LookupError(n)

        try:
            notes.write(work)
        except LookupError as error:
            return f"raised {error}"
        return "done"

    with ThreadPoolExecutor(16) as threads:
        said = list(threads.map(note, range(200)))
    assert said == [f"raised {n}" if n % 7 == 0 else "done" for n in range(200)]
    assert _numbers(notes) == [n for n in range(200) if n % 7]


def test_a_statement_that_the_database_refuses_fails_its_unit_alone(
    notes: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcp_engine.store.db.database.FIRST_PAUSE", 0.0001)  # PostgreSQL's is tried again
    notes.write(lambda tx: tx.plain("INSERT INTO notes VALUES (3)"))

    def note(n: int) -> Code | None:
        try:
            notes.write(lambda tx: tx.plain(f"INSERT INTO notes VALUES ({n})"))
        except LcpError as error:
            return error.code
        return None

    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(note, range(6)))
    assert said == [None, None, None, ErrorCode.DATABASE_FAILED, None, None]


@pytest.mark.parametrize(("is_ending", "shared"), [(False, 9), (True, 8)])
def test_those_that_come_during_work_share_its_commit_and_during_a_commit_the_next_one(
    notes: Database, is_ending: bool, shared: int
) -> None:
    commits: list[Tx] = []
    entered, go_on = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        go_on.wait()

    def first(tx: Tx) -> None:
        commits.append(tx)
        if is_ending:
            tx.at_end.append(block)
        else:
            block()

    with ThreadPoolExecutor(9) as threads:
        leader = threads.submit(notes.write, first)
        entered.wait()
        followers = [threads.submit(notes.write, commits.append) for _ in range(8)]
        wait_until(lambda: len(notes._waiting) == 8)
        assert not any(future.done() for future in [leader, *followers])
        go_on.set()
        for future in [leader, *followers]:
            future.result()
    assert len(commits) == 9
    assert commits.count(commits[-1]) == shared


def test_nothing_is_acknowledged_before_its_commit(notes: Database, open_another: Open) -> None:
    other = open_another()
    acknowledged: list[bool] = []
    in_commit = threading.Event()

    def last(tx: Tx) -> None:
        tx.at_end.append(lambda: acknowledged.append(writer.is_alive() and not _stored(other, 1)))
        tx.plain("INSERT INTO notes VALUES (1)")
        in_commit.set()

    writer = threading.Thread(target=lambda: notes.write(last))
    writer.start()
    writer.join()
    assert acknowledged == [True]
    assert _stored(other, 1)


def test_callers_behind_one_that_was_interrupted_go_on() -> None:
    units = [Unit(lambda tx: None) for _ in range(3)]
    for unit in units:
        unit.expect()
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(unit.wait) for unit in units[1:]]  # nobody is there any more for the first
        for unit in units:
            unit.is_done = True
        wake_all(units)
        for caller in waiting:
            caller.result(60)
    assert [unit.is_woken for unit in units] == [True, False, True]


def test_a_closed_database_refuses_and_what_came_before_is_committed(
    notes: Database, open_another: Open
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        entered.set()
        go_on.wait()
        tx.plain("INSERT INTO notes VALUES (1)")

    with ThreadPoolExecutor(3) as threads:
        under_way = threads.submit(notes.write, slow)
        entered.wait()
        waiting = threads.submit(notes.write, lambda tx: tx.plain("INSERT INTO notes VALUES (2)"))
        wait_until(lambda: notes._waiting)
        closing = threads.submit(notes.close)
        go_on.set()
        for future in (under_way, waiting, closing):
            future.result()
    with pytest.raises(LcpError, match="closed"):
        notes.write(lambda tx: None)
    assert _numbers(open_another()) == [1, 2]


def test_a_closed_database_leaves_nothing_open(notes: Database, database_url: str) -> None:
    if "postgres" in database_url:
        pytest.skip("files are what SQLite opens")
    notes.write(lambda tx: ledger_of(tx).lock([]))
    _count(notes)
    notes.close()
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert [path for path in opened if path.startswith(database_url.removeprefix("sqlite:///"))] == []


def test_what_was_acknowledged_is_there_when_others_close_the_database(database_url: str) -> None:
    """A process that closed any descriptor of the file would lose its locks, and others would delete its log."""
    with closing(open_database(database_url)) as before:
        before.write(lambda tx: tx.plain("CREATE TABLE notes (n INTEGER)"))
    with closing(open_database(database_url)) as ours:
        ours.read(lambda tx: tx.query_plain("SELECT 1 FROM missions"))
        ours.write(lambda tx: tx.plain("INSERT INTO notes VALUES (-1)"))
        for n in range(3):
            script = (
                "import sys; from lcp_engine.store.db.open import open_database as o; d = o(sys.argv[1]); "
            )
            script += f"d.write(lambda tx: tx.plain('INSERT INTO notes VALUES (1{n})')); d.close()"
            assert Python("-c", script, database_url).wait() == 0
            ours.write(lambda tx, n=n: tx.plain(f"INSERT INTO notes VALUES ({n})"))  # type: ignore[misc]  # bound now
    with closing(open_database(database_url)) as again:
        assert _numbers(again) == [-1, 0, 1, 2, 10, 11, 12]


def test_reads_of_many_threads_leave_no_connections_behind(notes: Database) -> None:
    for _ in range(30):
        reader = threading.Thread(target=lambda: _count(notes))
        reader.start()
        reader.join()
    assert len(notes._readers._idle) <= 2  # one read, which may have asked for the time


def test_a_read_sees_one_state(notes: Database) -> None:
    def look(tx: Tx) -> tuple[int, int]:
        before = len(tx.query_plain("SELECT n FROM notes"))
        writer = threading.Thread(
            target=lambda: notes.write(lambda tx: tx.plain("INSERT INTO notes VALUES (1)"))
        )
        writer.start()
        writer.join()
        return before, len(tx.query_plain("SELECT n FROM notes"))

    assert notes.read(look) == (0, 0)
    assert _count(notes) == 1


def test_a_read_cannot_write(notes: Database, database_url: str) -> None:
    # A server that refuses to write is no longer the primary, which is waited for.
    with closing(open_database(database_url, away_seconds=0.1)) as reader, pytest.raises(LcpError):
        reader.read(lambda tx: tx.plain("INSERT INTO notes VALUES (1)"))
    assert _count(notes) == 0


def _numbers(database: Database) -> list[int]:
    return [row[0] for row in database.read(lambda tx: tx.query_plain("SELECT n FROM notes ORDER BY n"))]


def _count(database: Database) -> int:
    return len(_numbers(database))


def _stored(database: Database, n: int) -> bool:
    return n in _numbers(database)
