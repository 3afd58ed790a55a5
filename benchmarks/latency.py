"""Time from a commit in one process to the start of the job in another."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.engine_runner import runner, until_done
from benchmarks.figures import Contender, Figure, Goal, quantile, race, ratio
from benchmarks.kinds import start
from benchmarks.raw_way import raw_way
from benchmarks.setting import Setting
from lcp_engine import Engine
from lcp_engine.store.db.database import Database

ARRIVAL = 0.02
LEAST = 20
SQLITE = "from commit to start in another process, SQLite"
POSTGRES = "from commit to start in another process, PostgreSQL"
RAW, PGQUEUER = "sqlite3 and a datagram", "PgQueuer"
MOST = {SQLITE: 2.0, POSTGRES: 3.0}


def run(setting: Setting) -> list[Figure]:
    """Jobs arrive about every 20 ms at an idle runner; a round takes about `seconds` for each contender."""
    arrivals = max(LEAST, int(setting.seconds / ARRIVAL))
    with ExitStack() as stack:
        raw = stack.enter_context(raw_way(Path(stack.enter_context(TemporaryDirectory(dir=setting.place)))))
        ways = {SQLITE: stack.enter_context(_way(stack.enter_context(setting.sqlite())))}
        contenders: dict[str, Contender] = {RAW: partial(raw.measure, arrivals, ARRIVAL)}
        if setting.postgres is not None:
            ways[POSTGRES] = stack.enter_context(_way(stack.enter_context(setting.new_postgres())))
            if setting.peers is not None:
                contenders[PGQUEUER] = partial(_pgqueuer, setting, arrivals)
        contenders |= {name: partial(way.measure, arrivals) for name, way in ways.items()}
        measured = race(contenders, setting.rounds)
    figures = [_figure(name, measured[name], way) for name, way in ways.items()]
    slowest = quantile(ways[SQLITE].from_commit, 0.99)
    note = f"{RAW}: {quantile(raw.from_commit, 0.99):.2f}"
    most = Goal(3, at_least=False, unit="ms")
    figures += [
        ratio(SQLITE, "ms", measured[SQLITE], measured[RAW], peer=RAW, goal=Goal(2, at_least=False)),
        Figure(f"{SQLITE}, 99 %", "ms", slowest, value=slowest, goal=most, note=note),
    ]
    if PGQUEUER in measured:
        ours, theirs = measured[POSTGRES], measured[PGQUEUER]
        figures.append(ratio(POSTGRES, "ms", ours, theirs, peer=PGQUEUER, goal=Goal(1, at_least=False)))
    return figures


@dataclass
class Way:
    """An engine with a runner in another process, and the measurements so far, in milliseconds."""

    engine: Engine
    committed: list[int]
    from_commit: list[float] = field(default_factory=list)
    from_call: list[float] = field(default_factory=list)

    def measure(self, arrivals: int) -> float:
        """The median of some jobs, from commit to start."""
        self.committed.clear()
        called, jobs = [], []
        for _ in range(arrivals):
            time.sleep(random.uniform(0.5, 1.5) * ARRIVAL)
            called.append(time.monotonic_ns())
            jobs.append(self.engine.enqueue(start.kind))
        started = [started_at(self.engine, job) for job in jobs]
        from_commit = [(at - then) / 1e6 for at, then in zip(started, self.committed, strict=True)]
        self.from_commit += from_commit
        self.from_call += [(at - then) / 1e6 for at, then in zip(started, called, strict=True)]
        return statistics.median(from_commit)


def _pgqueuer(setting: Setting, arrivals: int) -> float:
    with setting.new_postgres() as url:
        return setting.run_peer("pgqueuer_latency.py", url, arrivals, ARRIVAL)


def _figure(name: str, medians: Sequence[float], way: Way) -> Figure:
    median = statistics.median(medians)
    return Figure(
        name,
        "ms",
        median,
        value=median,
        goal=Goal(MOST[name], at_least=False, unit="ms"),
        note=f"99 %: {quantile(way.from_commit, 0.99):.2f}; from the call: {statistics.median(way.from_call):.2f}",
    )


@contextmanager
def _way(url: str) -> Iterator[Way]:
    with Engine(url) as engine, runner(url):
        until_done(engine, engine.enqueue(start.kind))  # from now on the runner is up
        yield Way(engine, note_commits(engine.instance.database))


def note_commits(database: Database) -> list[int]:
    """The times of this process's commits that made jobs ready; grows as it commits."""
    committed: list[int] = []
    notify = database.on_ready

    def note() -> None:
        committed.append(time.monotonic_ns())
        notify()

    database.on_ready = note
    return committed


def started_at(engine: Engine, job_id: int) -> int:
    """When the job started; waits until it has succeeded."""
    while (job := engine.job(job_id)).state != "succeeded":
        time.sleep(ARRIVAL)
    at = (job.result or {})["at"]
    assert isinstance(at, int)
    return at
