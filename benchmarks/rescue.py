"""Time until a dead runner's jobs start again, on its host and on another one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.engine_drain import fill
from benchmarks.engine_runner import runner, until_done
from benchmarks.figures import Figure, Goal
from benchmarks.kinds import hanging, start
from benchmarks.setting import Setting
from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.engine import missions
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queue import LEASE

BEFORE, BEHIND = 200, 100
"""Quick jobs before the one that hangs, until many are claimed at once, and after it."""
ON_ITS_HOST = "SIGKILL of a runner: its jobs run again after a successor is up"
FROM_AFAR = "SIGKILL of a runner: its job runs again on another host"

_AGAIN = "SELECT max(started_at), count(*) FROM jobs WHERE attempt > 1"
_UP = "SELECT max(started_at) FROM runners"
_CHARGED = "SELECT job_id FROM attempts WHERE outcome = 'rescued'"


def run(setting: Setting) -> list[Figure]:
    """Kill a runner while a job hangs and others, claimed with it, wait to start."""
    returns = [_on_its_host(setting) for _ in range(setting.rounds)]
    slowest = max(one.milliseconds for one in returns)
    unstarted = statistics.median(one.unstarted for one in returns)
    note = f"the slowest: {slowest:.0f}; {unstarted:.0f} jobs were claimed and not started, none of them was charged"
    return [
        _figure(ON_ITS_HOST, statistics.median(one.milliseconds for one in returns), 250, note),
        _figure(FROM_AFAR, _from_afar(setting), (LEASE + SECOND) / 1000, "where only its lease tells"),
    ]


@dataclass(frozen=True)
class Return:
    """The time until all leased jobs had started again, and how many of them had not started before."""

    milliseconds: float
    unstarted: int


def _on_its_host(setting: Setting) -> Return:
    with setting.sqlite() as url, Engine(url) as engine, _hung(setting, engine, url) as (job, kill):
        kill()
        with runner(url):
            while engine.jobs(states=["queued", "running"], limit=1):
                time.sleep(0.02)
        (again, count), (up,) = _rows(engine, _AGAIN)[0], _rows(engine, _UP)[0]
        charged = _rows(engine, _CHARGED)
    if charged != [(job,)]:
        raise SystemExit(f"the jobs {charged} are charged with an attempt; expected only job {job}")
    return Return((again - up) / 1000, count - 1)


def _from_afar(setting: Setting) -> float:
    """Milliseconds from the kill to the second start. The lock of a runner is not visible on another host."""
    with setting.sqlite() as url, Engine(url) as engine, _hung(setting, engine, url) as (job, kill):
        engine.instance.database.write(lambda tx: tx.plain("UPDATE runners SET host = 'far', boot = 'far'"))
        with runner(url):
            until_done(engine, engine.enqueue(start.kind, priority=1))  # from now on the successor is up
            kill()
            killed_at = engine.instance.database.now()
            until_done(engine, job)
        ((started_at,),) = _rows(engine, f"SELECT started_at FROM jobs WHERE id = {job}")
    return (started_at - killed_at) / 1000


@contextmanager
def _hung(setting: Setting, engine: Engine, url: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """A job at which a runner hangs, with others claimed after it, and a function that kills that runner."""
    with TemporaryDirectory(dir=setting.place) as directory:
        mark = Path(directory) / "mark"
        job = engine.instance.database.write(partial(_fill, mark=str(mark)))
        with runner(url) as victim:

            def kill() -> None:
                victim.kill()
                victim.wait()

            while not mark.exists():
                time.sleep(0.01)
            yield job, kill


def _fill(tx: Tx, mark: str) -> int:
    fill(tx, BEFORE)
    ledger = ledger_of(tx)
    job = missions.enqueue(
        ledger,
        hanging,
        missions.open_queue(ledger, "jobs"),
        {"mark": mark},
        name=None,
        priority=0,
        run_after=None,
    )
    fill(tx, BEHIND)
    return job


def _rows(engine: Engine, sql: str) -> list[tuple[int, ...]]:
    return [tuple(row) for row in engine.instance.database.read(lambda tx: tx.query_plain(sql))]


def _figure(what: str, value: float, most: float, note: str) -> Figure:
    return Figure(what, "ms", value, value=value, goal=Goal(most, at_least=False, unit="ms"), note=note)
