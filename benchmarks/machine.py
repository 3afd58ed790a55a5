"""Describe the machine, the versions and the cost of an fsync, without which figures mean little."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

from benchmarks.figures import quantile
from benchmarks.setting import Setting

PEERS = ("huey", "litequeue", "persist-queue", "dbos", "procrastinate", "pgqueuer", "psycopg", "sqlalchemy")
BLOCK = b"x" * 4096


def describe(setting: Setting) -> dict[str, str]:
    """What the figures were measured on, by name."""
    return {
        "machine": f"{os.cpu_count()} x {_processor()}, {platform.system()} {platform.release()}",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "fdatasync": fsync(setting.place),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "PostgreSQL": _postgres(setting.postgres),
        "rg": _first_line(["rg", "--version"]),
        "engine": ", ".join(f"{name} {version(name)}" for name in ("sqlalchemy", "pydantic", "psycopg")),
        "peers": _peers(setting.peers),
    }


def fsync(place: Path, count: int = 200) -> str:
    """The time of appending 4 KiB and its fdatasync, in milliseconds: no durable commit is faster."""
    spent = []
    with NamedTemporaryFile(dir=place) as file:
        for _ in range(count):
            began = time.perf_counter()
            os.write(file.fileno(), BLOCK)
            os.fdatasync(file.fileno())
            spent.append((time.perf_counter() - began) * 1000)
    return f"append of 4 KiB: {statistics.median(spent):.2f} ms, 99 %: {quantile(spent, 0.99):.2f} ms"


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    for line in described.read_text().splitlines() if described.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _postgres(url: str | None) -> str:
    if url is None:
        return "none"
    import psycopg

    with psycopg.connect(url) as connection:
        settings = ("server_version", "fsync", "synchronous_commit")
        values = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in settings]
    shown = [str(value[0]) if value else "?" for value in values]
    return f"{shown[0]}, fsync {shown[1]}, synchronous_commit {shown[2]}"


def _peers(python: Path | None) -> str:
    if python is None:
        return "none"
    script = (
        f"from importlib.metadata import version as v; print(', '.join(f'{{n}} {{v(n)}}' for n in {PEERS}))"
    )
    return _first_line([str(python), "-c", script])


def _first_line(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except FileNotFoundError:
        return "none"
