"""What only PostgreSQL does: connections break, rows are locked one by one."""

from __future__ import annotations

import os
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest
from pydantic import BaseModel

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.engine import missions as steer
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.settle import FinishedJob, settle, settle_all
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.examination import faults_in
from lcp_engine.features.upkeep.store.prune import prune
from lcp_engine.store import changes, queue
from lcp_engine.store.changes import missing_blobs
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import make_backend, open_database
from lcp_engine.store.db.postgres import Piped, Postgres, connect
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.large_results import LARGE
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.ledger_sql import EVENT
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Outcome, Worker


@pytest.mark.parametrize("secret", ["100%sesame", "ses/ame", "ses@ame", "ses ame", "sesame:1/x"])
@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgresql+other"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(scheme: str, secret: str) -> None:
    with pytest.raises(LcpError) as refused:
        make_backend(f"{scheme}://bob:{secret}@127.0.0.1:1/name").connect()
    assert "ame" not in str(refused.value).replace("NAME", "")
    assert refused.value.__cause__ is None


def test_a_connection_that_broke_is_opened_again(postgres_url: str) -> None:
    database = open_database(postgres_url)
    database.write(lambda tx: tx.plain("CREATE TABLE notes (n INTEGER)"))
    for n in range(3):
        _break_all(postgres_url)
        database.write(lambda tx, n=n: tx.plain(f"INSERT INTO notes VALUES ({n})"))  # type: ignore[misc]  # bound now
        _break_all(postgres_url)
        assert len(database.read(lambda tx: tx.query_plain("SELECT n FROM notes"))) == n + 1
    database.close()


def test_a_transaction_whose_connection_breaks_is_done_again_once(postgres_url: str) -> None:
    database = open_database(postgres_url)
    database.write(lambda tx: tx.plain("CREATE TABLE notes (n INTEGER)"))
    runs: list[int] = []

    def work(tx: Tx) -> None:
        tx.plain("INSERT INTO notes VALUES (1)")
        runs.append(1)
        if len(runs) == 1:
            _break_all(postgres_url)
        tx.plain("INSERT INTO notes VALUES (2)")

    database.write(work)
    assert len(runs) == 2
    assert database.read(lambda tx: tx.query_plain("SELECT n FROM notes ORDER BY n")) == [(1,), (2,)]
    database.close()


def test_dead_connections_of_the_pool_fail_no_read(postgres_url: str) -> None:
    database = open_database(postgres_url)
    count = 12
    all_read = threading.Barrier(count, timeout=60)
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(lambda _: database.read(lambda tx: all_read.wait()), range(count)))
    _break_all(postgres_url)
    assert database.read(lambda tx: tx.query_plain("SELECT 1")) == [(1,)]
    database.close()


def test_a_server_that_vanishes_without_a_word_is_noticed(postgres_url: str) -> None:
    backend = make_backend(postgres_url)
    assert isinstance(backend, Postgres)
    for opened in (backend.connect(), backend.connect_to_read()):
        assert isinstance(opened, Piped)
        with socket.socket(fileno=os.dup(opened.descriptor)) as asked:
            idle, interval, probes = (
                asked.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert asked.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert idle + interval * probes <= 15
            assert 0 < asked.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 15_000
        opened.close()


def test_what_the_url_says_of_a_server_that_vanishes_comes_first(postgres_url: str) -> None:
    opened = connect(f"{postgres_url}?keepalives_idle=77")
    with socket.socket(fileno=os.dup(opened.fileno())) as asked:
        assert asked.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
    opened.close()


def test_the_server_asks_after_the_host_of_a_transaction(postgres_url: str) -> None:
    database = open_database(postgres_url)
    settings = ("idle", "interval", "count")
    found = database.write(
        lambda tx: [tx.query_plain(f"SHOW tcp_keepalives_{name}")[0][0] for name in settings]
    )
    database.close()
    idle, interval, count = map(int, found)
    assert (idle + interval * count) * SECOND <= queue.LEASE + 2 * SECOND


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(LcpError) as refused:
        open_database("postgresql://nobody@127.0.0.1:1/nothing")
    assert refused.value.code is ErrorCode.DATABASE_FAILED


def test_missions_locked_in_any_order_lead_to_no_deadlock(postgres_url: str) -> None:
    one, other = open_database(postgres_url), open_database(postgres_url)
    for n in range(6):
        one.write(
            lambda tx, n=n: tx.plain(  # type: ignore[misc]  # bound now
                "INSERT INTO missions (uid, name, goal, spec, status, created_at) "
                f"VALUES ('m{n}', 'm', 'g', '{{}}', 'running', 0)"
            )
        )
    ids = [row[0] for row in one.read(lambda tx: tx.query_plain("SELECT id FROM missions ORDER BY id"))]

    def note(number: int) -> None:
        database = (one, other)[number % 2]
        order = ids if number % 4 < 2 else ids[::-1]

        def work(tx: Tx, mission_id: int) -> None:
            ledger_of(tx).note(ledger_of(tx).mission(mission_id), "seen")

        for mission_id in order:
            database.write(lambda tx, mission_id=mission_id: work(tx, mission_id))  # type: ignore[misc]  # bound now

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(note, range(24)))
    counted = one.read(lambda tx: tx.query_plain("SELECT events FROM missions"))
    stored = one.read(lambda tx: tx.query_plain("SELECT count(*), max(seq) FROM events GROUP BY mission_id"))
    assert counted == [(24,)] * 6
    assert stored == [(24, 24)] * 6
    assert _deadlocks(postgres_url) == 0
    one.close()
    other.close()


def test_results_kept_in_any_order_lead_to_no_deadlock(postgres_url: str) -> None:
    large = [f'"{letter * LARGE}"' for letter in "xy"]
    both, met = threading.Barrier(2, timeout=60), set[Database]()

    def settle_in(order: list[str], database: Database, jobs: list[JobRow]) -> None:
        def work(tx: Tx) -> None:
            for job, result in zip(jobs, order, strict=True):
                settle(ledger_of(tx), FinishedJob(job.copy(), Succeeded(result)), random.Random(1))
                if database not in met:
                    met.add(database)
                    both.wait()

        database.write(work)

    with Engine(postgres_url, workers=[NOOP]) as engine, ThreadPoolExecutor(2) as threads:
        one, other = engine.instance.database, open_database(postgres_url)
        missions = [one.write(partial(_two_leased, name=name)) for name in ("a", "b")]
        list(threads.map(settle_in, (large, large[::-1]), (one, other), missions))
        other.close()
        assert _deadlocks(postgres_url) == 0
        assert [engine.job(job.id).json["state"] for jobs in missions for job in jobs] == ["succeeded"] * 4
        assert one.read(faults_in) == []


def test_contents_kept_while_others_prune_stay(postgres_url: str) -> None:
    kept = b"kept"
    one, other = open_database(postgres_url), open_database(postgres_url)
    one.write(lambda tx: changes.keep(tx, changes.sha256(kept), kept))

    def work(tx: Tx) -> None:
        changes.keep(tx, changes.sha256(kept), kept)
        assert prune(other, ended_before=2**60).contents == 0

    one.write(work)
    assert one.read(lambda tx: changes.content(tx, changes.sha256(kept))) == kept
    one.close()
    other.close()


def test_contents_that_are_only_named_stay_while_others_prune(postgres_url: str) -> None:
    sha = changes.sha256(b"large")
    one, other = open_database(postgres_url), open_database(postgres_url)
    one.write(lambda tx: changes.name_unkept(tx, sha, 5))

    def work(tx: Tx) -> None:
        changes.name_unkept(tx, sha, 5)
        assert prune(other, ended_before=2**60).contents == 0

    one.write(work)
    assert one.read(lambda tx: tx.query_plain("SELECT size FROM blobs")) == [(5,)]
    one.close()
    other.close()


def test_contents_that_an_undo_refers_to_stay_while_others_prune(postgres_url: str) -> None:
    sha = changes.sha256(b"kept")
    one, other = open_database(postgres_url), open_database(postgres_url)
    one.write(lambda tx: changes.keep(tx, sha, b"kept"))

    def work(tx: Tx) -> None:
        assert missing_blobs(tx, [sha], keeps=True) == []
        assert prune(other, ended_before=2**60).contents == 0

    one.write(work)
    assert one.read(lambda tx: changes.content(tx, sha)) == b"kept"
    one.close()
    other.close()


def test_two_that_launch_with_one_key_at_once_get_one_mission(postgres_url: str) -> None:
    one, other = open_database(postgres_url), open_database(postgres_url)
    both = threading.Barrier(2, timeout=60)
    tries: list[int] = []

    def launch(tx: Tx) -> int:
        known = tx.query_plain("SELECT id FROM missions WHERE key = 'nightly'")
        tries.append(len(known))
        if len(tries) <= 2:
            both.wait()
        if known:
            return int(known[0][0])
        return int(
            tx.query_plain(
                "INSERT INTO missions (uid, key, name, goal, spec, status, created_at) "
                f"VALUES ('{len(tries)}{id(tx)}', 'nightly', 'm', 'g', '{{}}', 'running', 0) RETURNING id"
            )[0][0]
        )

    with ThreadPoolExecutor(2) as threads:
        ids = list(threads.map(lambda database: database.write(launch), (one, other)))
    assert ids[0] == ids[1]
    one.close()
    other.close()


def test_a_text_with_nul_is_refused(postgres_url: str) -> None:
    database = open_database(postgres_url)
    events = [(1, seq, None, 0, "seen", data) for seq, data in enumerate((None, "a\0b", "c"), 1)]
    with pytest.raises(LcpError, match="NUL"):
        database.write(lambda tx: tx.many(EVENT, events))
    database.close()


class Nothing(BaseModel):
    """No params, no result."""


def _do_nothing(params: Nothing, context: object) -> Outcome:
    return params


NOOP = Worker(
    kind="noop", params=Nothing, result=Nothing, execute=_do_nothing, has_effects=False
).for_any_params()


def test_a_claim_and_its_settlement_read_little_more_than_they_change(postgres_url: str) -> None:
    def fill(tx: Tx) -> int:
        ledger = ledger_of(tx)
        mission = steer.open_queue(ledger, "jobs")
        for _ in range(1000):
            steer.enqueue(ledger, NOOP, mission, {}, name=None, priority=0, run_after=None)
        return queue.add_runner(tx, uid="hands", host="elsewhere", boot="?", pid=1)

    def work(tx: Tx, runner: int) -> int:
        ledger = ledger_of(tx)
        before = _read(tx)
        claimed = queue.claim(ledger, queue.Scope(("noop",)), runner, 20)
        settle_all(ledger, [FinishedJob(job, Succeeded("{}")) for job in claimed], random.Random(1))
        assert len(claimed) == 20
        return _read(tx) - before

    with Engine(postgres_url, workers=[NOOP]) as engine:
        database = engine.instance.database
        runner = database.write(fill)
        for _ in range(8):  # from the sixth time on, the server may keep its plan
            assert database.write(lambda tx: work(tx, runner)) <= 20 * 8


def _two_leased(tx: Tx, name: str) -> list[JobRow]:
    """Two running jobs of a queue."""
    ledger = ledger_of(tx)
    mission = steer.open_queue(ledger, name)
    for _ in range(2):
        steer.enqueue(ledger, NOOP, mission, {}, name=None, priority=0, run_after=None)
    runner = queue.add_runner(tx, uid=name, host="elsewhere", boot="?", pid=1)
    return queue.claim(ledger, queue.Scope(("noop",)), runner, 2)


def _read(tx: Tx) -> int:
    """How many rows of `jobs` this transaction has read."""
    sql = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'jobs'"
    return int(tx.query_plain(sql)[0][0])


def _break_all(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def _deadlocks(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        assert row is not None
        return int(row[0])
