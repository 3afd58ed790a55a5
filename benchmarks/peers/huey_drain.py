"""Drain a backlog with Huey's consumer on SQLite, one worker thread, results kept; prints jobs per second.

Run by the Python of the peers. `fsync=True` is `synchronous=FULL`, what the engine has; `initial_delay` is only slept
when the queue is empty. An interval of 60 s and no health checks leave the worker alone.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time

from huey import SqliteHuey

logging.disable(logging.CRITICAL)


def main(path: str, backlog: int) -> None:
    huey = SqliteHuey("bench", filename=path, fsync=True, immediate=False)
    finished = threading.Event()
    left = backlog

    @huey.task()
    def nothing() -> bool:
        return True  # what is not None is stored as the result

    @huey.signal("complete")
    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            finished.set()

    fill(huey, [huey.serialize_task(nothing.s()) for _ in range(backlog)])
    consumer = huey.create_consumer(
        workers=1, worker_type="thread", periodic=False, initial_delay=0.001, backoff=1.0, max_delay=0.001,
        scheduler_interval=60, check_worker_health=False,
    )  # fmt: skip
    began = time.perf_counter()
    consumer.start()
    finished.wait()
    seconds = time.perf_counter() - began
    consumer.stop(graceful=True)
    if huey.pending_count() or huey.result_count() != backlog:
        raise SystemExit(f"{backlog} results have to be kept; there are {huey.result_count()}")
    print(json.dumps(backlog / seconds))


def fill(huey: SqliteHuey, tasks: list[bytes]) -> None:
    """Queue the backlog, without a commit for each task."""
    with huey.storage.db(commit=True) as cursor:
        cursor.executemany(
            "insert into task (queue, data, priority) values (?, ?, 0)", [(huey.name, item) for item in tasks]
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
