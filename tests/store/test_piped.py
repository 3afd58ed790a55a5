"""Statements travel to PostgreSQL together; each still comes to what it would alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import psycopg
import pytest
from tests.patience import wait_until

from lcp_engine.errors import LcpError
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import open_database
from lcp_engine.store.db.postgres import Piped
from lcp_engine.store.db.transaction import Tx

_END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)

_INTERRUPTED = """
import signal, sys
from lcp_engine.store.db.open import make_backend

class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

signal.signal(signal.SIGALRM, interrupt)
backend = make_backend(sys.argv[1])
connections, n, interrupts = [backend.connect()], 0, 0
while interrupts < 200:
    n += 1
    if getattr(connections[-1], "closed", False):
        connections.append(backend.connect())
    try:
        signal.setitimer(signal.ITIMER_REAL, (n % 50 + 1) * 1e-5)
        cursor = connections[-1].cursor()
        cursor.execute(f"SELECT {n}")
        assert cursor.fetchall() == [(n,)]
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        interrupts += 1
for connection in connections:
    connection.close()
"""


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    database = open_database(postgres_url)
    database.write(lambda tx: tx.plain("CREATE TABLE notes (n INTEGER PRIMARY KEY)"))
    yield database
    database.close()


@pytest.fixture
def connection(database: Database) -> Iterator[Piped]:
    connection = database.backend.connect()
    assert isinstance(connection, Piped)
    yield connection
    connection.close()


def _notes(database: Database) -> list[int]:
    return [row[0] for row in database.read(lambda tx: tx.query_plain("SELECT n FROM notes ORDER BY n"))]


def _note(tx: Tx, n: int) -> None:
    tx.plain(f"INSERT INTO notes VALUES ({n})")


def test_params_are_read_as_they_were_given(connection: Piped) -> None:
    given = {
        "i": -(2**62),
        "f": 1e-300,
        "b": True,
        "t": "it's\\\n%s ☃",
        "d": b"\0\xff'",
        "l": [1, 2],
        "z": None,
    }
    sql = "SELECT %(i)s::bigint, %(f)s::float8, %(b)s::boolean, %(t)s::text, %(d)s::bytea, %(l)s::bigint[], %(z)s::text"
    cursor = connection.cursor()
    for _ in range(6):  # from the fourth time on, the server has kept the statement
        cursor.execute(f"{sql}, 5 %% 3, %(i)s::bigint", given)
        assert cursor.fetchone() == (*given.values(), 2, given["i"])
        assert cursor.fetchone() is None


def test_sql_without_params_is_taken_as_it_is(connection: Piped) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT '%(a)s %%', 5 % 3")
    assert cursor.fetchall() == [("%(a)s %%", 2)]
    assert cursor.rowcount == 1


def test_each_cursor_has_the_answer_to_its_own_statement(connection: Piped) -> None:
    cursors = [connection.cursor() for _ in range(5)]
    for n, cursor in enumerate(cursors):
        cursor.execute("SELECT * FROM generate_series(1, %(n)s::int)", {"n": n})
    assert [cursor.rowcount for cursor in reversed(cursors)] == [4, 3, 2, 1, 0]
    assert [len(cursor.fetchall()) for cursor in cursors] == [0, 1, 2, 3, 4]


def test_more_than_the_wires_hold_goes_through_both_ways(connection: Piped) -> None:
    cursors = [connection.cursor() for _ in range(20)]
    for cursor in cursors:
        cursor.execute("SELECT %(t)s::text", {"t": "x" * 1_000_000})
    assert all(cursor.fetchall() == [("x" * 1_000_000,)] for cursor in cursors)


def test_what_is_wrong_with_a_statement_nobody_asks_about_undoes_the_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcp_engine.store.db.database.FIRST_PAUSE", 0.0001)  # it is tried again

    def work(tx: Tx) -> None:
        for n in (1, 2, 2, 3):
            tx.plain(f"INSERT INTO notes VALUES ({n})")
        tx.plain("SELECT 1 / 0")

    with pytest.raises(LcpError, match="notes_pkey"):
        database.write(work)
    assert _notes(database) == []
    database.write(lambda tx: tx.plain("INSERT INTO notes VALUES (4)"))
    assert _notes(database) == [4]


def test_a_commit_that_took_effect_is_told_so_whatever_happens_to_the_connection_afterwards(
    database: Database, connection: Piped
) -> None:
    cursor = connection.cursor()
    for sql in ("BEGIN", "INSERT INTO notes VALUES (1)", "COMMIT"):
        cursor.execute(sql)
    database.write(lambda tx: tx.plain(_END_OTHERS))
    assert _notes(database) == [1]
    with pytest.raises(psycopg.OperationalError):
        connection.settle()
    with pytest.raises(psycopg.OperationalError):
        cursor.execute("ROLLBACK")
    assert connection.closed


def test_a_transaction_that_failed_cannot_be_committed(database: Database, connection: Piped) -> None:
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    cursor.execute("SELECT 1 / 0")
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.settle()
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        cursor.execute("COMMIT")
    cursor.execute("SELECT 1")
    assert cursor.fetchall() == [(1,)]


def test_a_read_sees_one_state_and_the_next_read_what_came_meanwhile(database: Database) -> None:
    reading = database.backend.connect_to_read()
    database.backend.clock(lambda: nullcontext(reading))
    cursor = reading.cursor()
    for n in range(5):
        cursor.execute("BEGIN")
        cursor.execute("SELECT count(*) FROM notes")
        assert cursor.fetchall() == [(n,)]
        database.write(partial(_note, n=n))
        cursor.execute("SELECT n FROM notes ORDER BY n")
        assert cursor.fetchall() == [(before,) for before in range(n)]
        cursor.execute("ROLLBACK")
    reading.close()


def test_a_connection_goes_on_behind_what_was_wrong(connection: Piped) -> None:
    cursor = connection.cursor()
    for asks in (True, False):
        for sql in ("BEGIN", "SELECT 1 / 0", "SELECT 1"):
            cursor.execute(sql)
        if asks:
            with pytest.raises(psycopg.errors.DivisionByZero):
                cursor.fetchall()
        cursor.execute("ROLLBACK")
        cursor.execute("SELECT 2")
        assert cursor.fetchall() == [(2,)]


def test_behind_an_interrupt_nobody_gets_the_answer_to_another_question(postgres_url: str) -> None:
    # In a process of its own: what measures the tests holds locks that an interrupt would leave locked.
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, postgres_url], check=False, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_of_those_that_share_a_transaction_only_the_one_in_the_wrong_fails(database: Database) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    failed: list[int] = []

    def hold(tx: Tx) -> None:
        has_begun.set()
        may_end.wait()

    def note(n: int) -> None:
        def work(tx: Tx) -> None:
            tx.plain(f"INSERT INTO notes VALUES ({n})")
            if n == 2:
                tx.plain("SELECT 1 / 0")

        try:
            database.write(work)
        except LcpError:
            failed.append(n)

    threads = [threading.Thread(target=database.write, args=(hold,))]
    threads[0].start()
    has_begun.wait()
    for n in range(5):
        threads.append(threading.Thread(target=note, args=(n,)))
        threads[-1].start()
    wait_until(lambda: len(database._waiting) == 5)
    may_end.set()
    for thread in threads:
        thread.join()
    assert failed == [2]
    assert _notes(database) == [0, 1, 3, 4]
