"""Time the way from a commit to the start of a job in another process with PgQueuer; prints the median in milliseconds.

Run by the Python of the peers. Jobs arrive about every `every` seconds at a process that waits for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import statistics
import subprocess
import sys
import time

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.models import Job

logging.disable(logging.CRITICAL)


async def measure(url: str, arrivals: int, every: float) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()
    runner = await asyncio.create_subprocess_exec(sys.executable, __file__, url, stdout=subprocess.PIPE)
    assert runner.stdout is not None
    await queries.enqueue("start", None)
    await runner.stdout.readline()  # from here on it is up
    committed = {}
    for _ in range(arrivals):
        await asyncio.sleep(random.uniform(0.5, 1.5) * every)
        (job,) = await queries.enqueue("start", None)
        committed[int(job)] = time.monotonic_ns()
    started = dict([map(int, (await runner.stdout.readline()).split()) for _ in range(arrivals)])
    runner.kill()
    await runner.wait()
    print(json.dumps(statistics.median((started[job] - at) / 1e6 for job, at in committed.items())))


async def execute(url: str) -> None:
    """Tell the id of each job and when it started: nanoseconds of the monotonic clock, which all processes share."""
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @queuer.entrypoint("start")
    async def start(job: Job) -> None:
        at = time.monotonic_ns()
        print(int(job.id), at, flush=True)

    await queuer.run()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        asyncio.run(execute(sys.argv[1]))
    else:
        asyncio.run(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
