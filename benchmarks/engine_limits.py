"""Drain jobs beside limited ones, or start them at a rate in four processes; print how many in a second."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count

from pydantic import BaseModel

from benchmarks.kinds import Nothing
from lcp_engine import Context, Engine, Worker
from lcp_engine.engine import missions
from lcp_engine.mission import RateLimit
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of

LIMITED = 50
WAITING = 20
"""Jobs of each limited kind: they wait, in front of the others."""
RUNNERS = 4
BURST = 20


def main(url: str, how: str, *numbers: str) -> None:
    match how, [*map(int, numbers)]:
        case "rate", [per_second, seconds]:
            print(json.dumps(start_at_a_rate(url, per_second, seconds)))
        case "runner", [per_second]:
            with Engine(url, workers=[rated_kind(per_second)]) as engine:
                engine.work(until_idle=True)
        case "plain" | "beside" | "unmet", [backlog]:
            print(json.dumps(drain(url, how, backlog)))
        case _:
            raise SystemExit(f"{how} {numbers}: plain, beside, unmet, rate or runner is expected")


def kind(name: str, rate: RateLimit | None = None, execute: Callable[[], object] = int) -> Worker[BaseModel]:
    """A kind that calls `execute` and does nothing else."""

    def call(params: Nothing, context: Context) -> Nothing:
        execute()
        return params

    return Worker(name, Nothing, Nothing, call, has_effects=False, rate_limit=rate).for_any_params()


def drain(url: str, how: str, backlog: int) -> float:
    """Jobs of the unlimited kind per second of CPU; limited ones are in front of them, and start once a minute."""
    done = count(1)
    rare = RateLimit(requests_per_minute=1)
    limited = [kind(f"limited.{number}", rare) for number in range(LIMITED)] if how == "beside" else []
    unmet = RateLimit(requests_per_minute=60_000, burst=1_000_000) if how == "unmet" else None

    def note() -> None:
        if next(done) == backlog:
            runner.stop()

    free = kind("free", unmet, note)
    with Engine(url, workers=[free, *limited]) as engine:
        engine.instance.database.write(lambda tx: fill(tx, [*limited * WAITING, *[free] * backlog]))
        runner = engine.runner()
        began = time.process_time()
        runner.run()
        seconds = time.process_time() - began
        left = len(engine.jobs(states=["queued"]))
    if left != len(limited) * (WAITING - 1):
        raise SystemExit(f"{left} jobs are left; {len(limited) * (WAITING - 1)} are expected to wait")
    return backlog / seconds


def start_at_a_rate(url: str, per_second: int, seconds: int) -> float:
    """Starts per second of jobs that four processes claim from one queue, after the burst at the beginning."""
    rated = rated_kind(per_second)
    with Engine(url, workers=[rated]) as engine:
        engine.instance.database.write(lambda tx: fill(tx, [rated] * (BURST + per_second * seconds)))
        command = [sys.executable, "-m", "benchmarks.engine_limits", url, "runner", str(per_second)]
        runners = [subprocess.Popen(command) for _ in range(RUNNERS)]
        if any(runner.wait() for runner in runners):
            raise SystemExit("a runner failed")
        jobs = engine.jobs(states=["succeeded"])
    starts = sorted(job.started_at.timestamp() for job in jobs if job.started_at is not None)
    after, rest = starts[BURST], starts[BURST + 1 :]
    return len(rest) / (rest[-1] - after)


def rated_kind(per_second: int) -> Worker[BaseModel]:
    return kind("rated", RateLimit(requests_per_minute=60 * per_second, burst=BURST))


def fill(tx: Tx, workers: Sequence[Worker[BaseModel]]) -> None:
    """Queue a job of each worker in one transaction."""
    ledger = ledger_of(tx)
    mission = missions.open_queue(ledger, "jobs")
    for worker in workers:
        missions.enqueue(ledger, worker, mission, {}, name=None, priority=0, run_after=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
