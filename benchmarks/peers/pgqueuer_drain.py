"""Drain a backlog with PgQueuer on PostgreSQL, 100 jobs a batch; prints jobs per second.

Run by the Python of the peers. asyncpg is its fastest driver; what it has finished is in its log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

logging.disable(logging.CRITICAL)


async def main(url: str, backlog: int) -> None:
    connection = await asyncpg.connect(url)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.install()
    for first in range(0, backlog, 500):
        count = min(500, backlog - first)
        await queries.enqueue(["nothing"] * count, [None] * count, [0] * count)
    queuer = PgQueuer(driver)
    done = 0

    @queuer.entrypoint("nothing")
    async def nothing(job: Job) -> None:
        nonlocal done
        done += 1

    began = time.perf_counter()
    await queuer.run(batch_size=100, mode=QueueExecutionMode.drain)
    seconds = time.perf_counter() - began
    left = sum(row.count for row in await queries.queue_size())
    if done != backlog or left:
        raise SystemExit(f"{backlog} jobs have to be done; {done} are, {left} are left")
    print(json.dumps(backlog / seconds))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
