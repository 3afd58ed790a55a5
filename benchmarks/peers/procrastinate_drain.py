"""Drain a backlog with a Procrastinate worker on PostgreSQL; prints jobs per second.

Run by the Python of the peers. Concurrency 4 was its best on two cores (1: two thirds of it, 16: no more); finished
jobs and their events are kept, as the engine does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

from procrastinate import App, PsycopgConnector

logging.disable(logging.CRITICAL)


async def main(url: str, backlog: int) -> None:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=8))

    @app.task(name="nothing")
    async def nothing() -> None:
        pass

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for first in range(0, backlog, 500):
            await nothing.batch_defer_async(*({} for _ in range(min(500, backlog - first))))
        began = time.perf_counter()
        await app.run_worker_async(
            wait=False, concurrency=4, listen_notify=False, delete_jobs="never", install_signal_handlers=False
        )
        seconds = time.perf_counter() - began
        row = await app.connector.execute_query_one_async(
            "SELECT count(*) AS done FROM procrastinate_jobs WHERE status = 'succeeded'"
        )
    if row["done"] != backlog:
        raise SystemExit(f"{backlog} jobs have to succeed; {row['done']} did")
    print(json.dumps(backlog / seconds))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
