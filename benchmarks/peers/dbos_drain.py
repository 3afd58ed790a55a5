"""Drain a backlog with a DBOS queue on SQLite; prints jobs per second.

Run by the Python of the peers. 16 workers and a look each 50 ms were its best; its file is in WAL mode, as
the engine's is. The clock starts when the last job is queued: what it has done before that is a gift.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
import time

from dbos import DBOS

logging.disable(logging.CRITICAL)


def main(path: str, backlog: int) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "log_level": "CRITICAL"})

    @DBOS.workflow()
    def nothing() -> None:
        pass

    DBOS.launch()
    queue = DBOS.register_queue("bench", worker_concurrency=16, polling_interval_sec=0.05)
    handles = [queue.enqueue(nothing) for _ in range(backlog)]
    began = time.perf_counter()
    for handle in handles:
        handle.get_result(polling_interval_sec=0.05)
    seconds = time.perf_counter() - began
    DBOS.destroy()
    print(json.dumps(backlog / seconds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
