"""Show that each database keeps the contract of `Backend`: what the engine relies on beneath all its transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from lcp_engine.errors import ErrorCode
from lcp_engine.store.db.open import make_backend
from lcp_engine.store.db.transaction import Backend, Connection, Row

NOW = 1_800_000_000_000_000


@pytest.fixture
def backend(database_url: str) -> Backend:
    return make_backend(database_url, busy_seconds=0.2)


@pytest.fixture
def writer(backend: Backend) -> Iterator[Connection]:
    with closing(backend.connect()) as connection:
        connection.cursor().execute("CREATE TABLE noted (word TEXT UNIQUE)")
        backend.settle(connection)
        yield connection


@contextmanager
def reading(backend: Backend) -> Iterator[Connection]:
    with closing(backend.connect_to_read()) as connection:
        yield connection


def do(connection: Connection, *statements: str, settled: Backend | None = None) -> None:
    for statement in statements:
        connection.cursor().execute(statement)
    if settled is not None:
        settled.settle(connection)


def rows(connection: Connection, query: str = "SELECT word FROM noted ORDER BY word") -> list[Row]:
    cursor = connection.cursor()
    cursor.execute(query)
    return [tuple(row) for row in cursor.fetchall()]


def test_what_was_committed_is_there_and_what_was_rolled_back_is_not(
    backend: Backend, writer: Connection
) -> None:
    for word, ending in (("kept", "COMMIT"), ("dropped", "ROLLBACK")):
        backend.begin(writer)
        do(writer, f"INSERT INTO noted VALUES ('{word}')", ending, settled=backend)
    with reading(backend) as reader:
        assert rows(reader) == [("kept",)]


def test_nobody_sees_a_transaction_before_its_commit(backend: Backend, writer: Connection) -> None:
    backend.begin(writer)
    do(writer, "INSERT INTO noted VALUES ('new')", settled=backend)
    with reading(backend) as reader:
        assert rows(reader) == []
    do(writer, "COMMIT", settled=backend)
    with reading(backend) as reader:
        assert rows(reader) == [("new",)]


def test_a_reader_keeps_one_state_and_changes_nothing(backend: Backend, writer: Connection) -> None:
    with reading(backend) as reader:
        do(reader, "BEGIN")
        assert rows(reader) == []
        do(writer, "INSERT INTO noted VALUES ('meanwhile')", settled=backend)
        assert rows(reader) == []
        do(reader, "ROLLBACK")
        with pytest.raises(Exception, match=r"(?i)read-?only") as refused:
            do(reader, "BEGIN", "INSERT INTO noted VALUES ('forbidden')", settled=backend)
        assert backend.explain(refused.value) is not None
    with reading(backend) as reader:
        assert rows(reader) == [("meanwhile",)]


def test_settling_raises_the_first_error_and_the_connection_goes_on(
    backend: Backend, writer: Connection
) -> None:
    do(writer, "INSERT INTO noted VALUES ('once')", settled=backend)
    backend.begin(writer)
    with pytest.raises(Exception, match=r"(?i)unique") as refused:
        do(writer, "INSERT INTO noted VALUES ('once')", settled=backend)
    do(writer, "ROLLBACK", settled=backend)
    explained = backend.explain(refused.value)
    assert explained is not None
    assert explained.code == ErrorCode.DATABASE_FAILED
    assert "unique" in str(explained).lower()
    assert not backend.is_away(refused.value)
    assert backend.is_usable(writer)
    assert rows(writer) == [("once",)]


def test_only_errors_of_the_driver_are_explained(backend: Backend) -> None:
    assert backend.explain(ValueError("of somebody else")) is None
    assert not backend.is_away(ValueError("of somebody else"))
    assert not backend.may_retry(ValueError("of somebody else"))


def test_a_commit_that_may_be_in_doubt_has_a_name_that_tells_what_became_of_it(
    backend: Backend, writer: Connection
) -> None:
    committed: list[bool | None] = []
    for ending in ("COMMIT", "ROLLBACK"):
        backend.begin(writer)
        do(writer, f"INSERT INTO noted VALUES ('{ending}')")
        name = backend.transaction(writer)
        do(writer, ending, settled=backend)
        if name is not None:
            with closing(backend.connect()) as another:
                committed.append(backend.has_committed(another, name, NOW))
    assert committed == ([] if backend.name == "sqlite" else [True, False])


def test_a_writer_waits_for_another_and_its_error_says_that_it_waited(
    backend: Backend, writer: Connection
) -> None:
    with closing(backend.connect()) as other, ThreadPoolExecutor(1) as thread:
        do(other, "INSERT INTO noted VALUES ('contested')", settled=backend)
        backend.begin(writer)
        do(writer, "UPDATE noted SET word = 'first'", settled=backend)
        begun = threading.Event()

        def change_too() -> None:
            begun.set()
            backend.begin(other)
            do(other, "UPDATE noted SET word = word || ' and second'", "COMMIT", settled=backend)

        waiting = thread.submit(change_too)
        assert begun.wait(30)
        if backend.name == "sqlite":  # waits for as long as it was told to
            refused = waiting.exception(timeout=30)
            assert isinstance(refused, Exception)
            explained = backend.explain(refused)
            assert explained is not None
            assert explained.code == ErrorCode.DATABASE_BUSY
            assert "0.2 s" in str(explained)
        do(writer, "COMMIT", settled=backend)
        if backend.name != "sqlite":
            waiting.result(timeout=30)
    changed = "first" if backend.name == "sqlite" else "first and second"
    assert rows(writer) == [(changed,)]


def test_the_clock_is_that_of_the_database_and_never_goes_back(backend: Backend) -> None:
    with reading(backend) as reader:
        clock = backend.clock(lambda: _lent(reader))
        times = [clock() for _ in range(1000)]
    assert times == sorted(times)
    with reading(backend) as reader:
        seconds = "CAST(strftime('%s', 'now') AS INTEGER)"
        if backend.name != "sqlite":
            seconds = "CAST(extract(epoch FROM clock_timestamp()) AS bigint)"
        ((now,),) = rows(reader, f"SELECT {seconds}")
    assert abs(times[-1] / 1e6 - now) < 30


@contextmanager
def _lent(connection: Connection) -> Iterator[Connection]:
    yield connection


def test_a_sweep_is_the_same_database_and_flushes_what_it_wrote(backend: Backend, writer: Connection) -> None:
    sweeping = backend.sweeping()
    assert sweeping.name == backend.name
    with closing(sweeping.connect()) as sweeper:
        sweeping.begin(sweeper)
        do(sweeper, "INSERT INTO noted VALUES ('swept')", "COMMIT", settled=sweeping)
        assert sweeping.flush(sweeper) is False
    assert rows(writer) == [("swept",)]


def test_a_connection_that_was_closed_is_of_no_use_and_another_one_is(backend: Backend) -> None:
    closed = backend.connect()
    closed.close()
    assert not backend.is_usable(closed) or backend.name == "sqlite"
    with closing(backend.connect()) as opened:
        assert backend.is_usable(opened)
        assert rows(opened, "SELECT 1") == [(1,)]
