"""Enqueue jobs one by one with Huey, litequeue or persist-queue on SQLite; prints jobs per second.

Run by the Python of the peers. Each commit is on disk when its call returns: SQLite's own default in WAL mode, which
litequeue lowers and which it gets back here.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import litequeue
import persistqueue
from huey import SqliteHuey


def huey(path: str) -> Callable[[], object]:
    queue = SqliteHuey("bench", filename=path, fsync=True, immediate=False)

    @queue.task()
    def nothing() -> None:
        pass

    return nothing


def lite(path: str) -> Callable[[], object]:
    queue = litequeue.LiteQueue(path)
    queue.conn.execute("PRAGMA synchronous=FULL")
    return lambda: queue.put("{}")


def persist(path: str) -> Callable[[], object]:
    queue = persistqueue.SQLiteAckQueue(path, auto_commit=True)
    return lambda: queue.put({})


QUEUES = {"huey": huey, "litequeue": lite, "persist-queue": persist}


def main(name: str, path: str, seconds: float) -> None:
    enqueue = QUEUES[name](path)
    enqueue()
    count, began = 0, time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        enqueue()
        count += 1
    print(json.dumps(count / (now - began)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
