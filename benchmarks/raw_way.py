"""Time from a commit in one process to a start in another with only sqlite3 and a datagram."""

from __future__ import annotations

import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.raw_runner import connect
from benchmarks.setting import PROJECT

CREATE = """
CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT NOT NULL, started INTEGER);
CREATE INDEX ready ON jobs (id) WHERE state = 'queued';
"""


class RawWay:
    """A database and the other process."""

    def __init__(self, connection: sqlite3.Connection, other: Path) -> None:
        self._connection = connection
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._other = str(other)
        self.from_commit: list[float] = []
        """The measurements so far, in milliseconds."""

    def measure(self, arrivals: int, every: float) -> float:
        """The median of some jobs, from commit to start, in milliseconds."""
        committed: dict[int, int] = {}
        for _ in range(arrivals):
            time.sleep(random.uniform(0.5, 1.5) * every)
            job = self._connection.execute("INSERT INTO jobs (state) VALUES ('queued')").lastrowid
            assert job is not None
            committed[job] = time.monotonic_ns()
            self._sender.sendto(b"1", self._other)
        while self._connection.execute("SELECT 1 FROM jobs WHERE state <> 'succeeded'").fetchone():
            time.sleep(every)
        started: dict[int, int] = dict(self._connection.execute("SELECT id, started FROM jobs"))
        measured = [(started[job] - at) / 1e6 for job, at in committed.items()]
        self.from_commit += measured
        return statistics.median(measured)


@contextmanager
def raw_way(place: Path) -> Iterator[RawWay]:
    """A database in `place`, and the process that waits for a datagram."""
    path = place / "raw.db"
    connection = connect(path)
    connection.executescript(CREATE)
    other = path.with_name("raw.db.sock")
    command = [sys.executable, "-m", "benchmarks.raw_runner", str(path)]
    with subprocess.Popen(command, cwd=PROJECT) as runner:
        try:
            while not other.exists() and runner.poll() is None:
                time.sleep(0.01)
            yield RawWay(connection, other)
        finally:
            runner.kill()
            connection.close()
