"""Time one job at a time (enqueue, claim, settle) beside much and little history."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Goal, race, ratio
from benchmarks.kinds import nothing
from benchmarks.setting import Setting
from lcp_engine.engine import missions
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.settle import FinishedJob, settle
from lcp_engine.store import queue
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import open_database
from lcp_engine.store.db.sqlite import Sqlite
from lcp_engine.store.db.transaction import Connection, Tx
from lcp_engine.store.ledger import ledger_of

LITTLE, MUCH = 10_000, 1_000_000
CHUNK = 100_000
SCOPE = queue.Scope((nothing.kind,))
JOBS = 200

_FINISHED = (
    """
INSERT INTO jobs (mission_id, kind, params, state, attempt, created_at, started_at, ended_at, settled_seq, result)
SELECT 1, 'bench.nothing', '{{}}', 'succeeded', 1, i, i, i, 3 * i + 1, '{{}}' FROM ({numbers}) numbers
""",
    """
INSERT INTO attempts (job_id, attempt, started_at, ended_at, outcome)
SELECT i, 1, i, i, 'succeeded' FROM ({numbers}) numbers
""",
    """
INSERT INTO events (mission_id, seq, job_id, at, event)
SELECT 1, 3 * i + place, i, i, event FROM ({numbers}) numbers
CROSS JOIN (SELECT -1 AS place, 'queued' AS event UNION ALL SELECT 0, 'started' UNION ALL SELECT 1, 'succeeded') three
""",
)
"""Event 1 is the launch; the events of job 1 follow."""
_NUMBERS = (
    "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT i FROM n"
)


def run(setting: Setting) -> list[Figure]:
    """Commits do not wait for the disk: an fsync would hide what is measured."""
    figures = _compare(setting, "SQLite", setting.sqlite)
    if setting.postgres is not None:
        figures += _compare(setting, "PostgreSQL", setting.new_postgres)
    return figures


class Hasty(Sqlite):
    """SQLite without waiting for the disk."""

    def connect(self) -> Connection:
        connection = super().connect()
        connection.cursor().execute("PRAGMA synchronous=NORMAL")
        return connection


def _compare(setting: Setting, name: str, new: Callable[[], AbstractContextManager[str]]) -> list[Figure]:
    with ExitStack() as stack:
        much, little = (Queue(_opened(stack.enter_context(new())), finished) for finished in (MUCH, LITTLE))
        race({"much": much.measure, "little": little.measure}, 2 * setting.rounds)
        much.database.close()
        little.database.close()
    return [
        _figure(f"enqueue beside {MUCH:,} finished jobs, {name}", much.enqueued, little.enqueued),
        _figure(f"claim and settle beside {MUCH:,} finished jobs, {name}", much.done, little.done),
    ]


def _figure(what: str, much: list[float], little: list[float]) -> Figure:
    return ratio(what, "µs", much, little, peer=f"{LITTLE:,} finished", goal=Goal(1.1, at_least=False))


def _opened(url: str) -> Database:
    open_database(url).close()
    if url.startswith("sqlite"):
        return Database(Hasty(Path(url.removeprefix("sqlite:///"))))
    return open_database(f"{url}?options=-c%20synchronous_commit%3Doff")


class Queue:
    """A database with `finished` jobs in its history, in which jobs are done one at a time.

    `enqueued` and `done` are the medians of each measurement, in microseconds.
    """

    def __init__(self, database: Database, finished: int) -> None:
        self.database = database
        self.enqueued: list[float] = []
        self.done: list[float] = []
        self._jitter = random.Random(1)
        self._mission = database.write(lambda tx: missions.open_queue(ledger_of(tx), "jobs"))
        for first in range(1, finished + 1, CHUNK):
            database.write(partial(_finish, first=first, last=min(finished, first + CHUNK - 1)))
        database.write(partial(_count, finished=finished))
        self._runner = database.write(
            lambda tx: queue.add_runner(tx, uid="bench", host="bench", boot="", pid=0)
        )

    def measure(self) -> float:
        """The median of a claim and a settlement; each is a transaction, and so is each enqueue before them."""
        self.enqueued.append(_median(lambda: self.database.write(self._enqueue)))
        self.done.append(_median(self._do_one))
        return self.done[-1]

    def _enqueue(self, tx: Tx) -> int:
        ledger = ledger_of(tx)
        return missions.enqueue(ledger, nothing, self._mission, {}, name=None, priority=0, run_after=None)

    def _do_one(self) -> None:
        (job,) = self.database.write(lambda tx: queue.claim(ledger_of(tx), SCOPE, self._runner, 1))
        settling = FinishedJob(job, Succeeded("{}"))
        assert self.database.write(partial(self._settle, settling=settling))

    def _settle(self, tx: Tx, settling: FinishedJob) -> bool:
        return settle(ledger_of(tx), settling, self._jitter)


def _median(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(JOBS):
        began = time.perf_counter_ns()
        work()
        spent.append((time.perf_counter_ns() - began) / 1000)
    return statistics.median(spent)


def _finish(tx: Tx, first: int, last: int) -> None:
    for sql in _FINISHED:
        tx.plain(sql.format(numbers=_NUMBERS.format(first=first, last=last)))


def _count(tx: Tx, finished: int) -> None:
    """Set the counters, and update the database's statistics, as it would in time."""
    tx.plain(f"UPDATE missions SET events = {1 + 3 * finished}, succeeded = {finished} WHERE id = 1")
    tx.plain("ANALYZE")
