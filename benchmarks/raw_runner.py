"""Claim a row at each datagram and do nothing else: the least that waking another process costs."""

from __future__ import annotations

import socket
import sqlite3
import sys
import time
from pathlib import Path


def main(path: str) -> None:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(f"{path}.sock")
    connection = connect(path)
    while receiver.recv(16) == b"1":
        connection.execute("BEGIN IMMEDIATE")
        (job,) = connection.execute(
            "SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1"
        ).fetchone()
        connection.execute("UPDATE jobs SET state = 'running' WHERE id = ?", (job,))
        connection.execute("COMMIT")
        started = time.monotonic_ns()
        connection.execute("UPDATE jobs SET state = 'succeeded', started = ? WHERE id = ?", (started, job))


def connect(path: str | Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


if __name__ == "__main__":
    main(sys.argv[1])
