"""Carry out the cells of hardbyte/postgresql-job-queue-benchmarking on a private PostgreSQL server: `make chaos`.

Usage: python -m benchmarks.chaos [--seconds N] [--rate N] [--only NAME]…

Each cell lasts about N seconds: a baseline, the stress, and the recovery. Prints the throughput of the recovery as a
share of the baseline's, how long the adapters took to end, how many acknowledged jobs were lost and how many jobs were
completed twice. Ends with 1 if any was; the other figures depend on the machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from tests.faults.server import Server, programs

from benchmarks.chaos.cells import CELLS, Cell
from benchmarks.chaos.fleet import Fleet
from lcp_engine import Engine

WARM = 0.15
BASELINE = 0.25
STRESS = 0.25
RECOVERY = 0.35
"""Shares of a cell's time."""
STARTED_SECONDS = 60.0
DRAIN_SECONDS = 300.0
WORKERS = 8


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seconds", type=float, default=24, help="how long each cell lasts (24)")
    parser.add_argument("--rate", type=float, default=100, help="how many jobs a second are enqueued (100)")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only these cells; * stands for anything"
    )
    given = parser.parse_args()
    if programs() is None:
        print("make chaos needs the PostgreSQL server; no initdb was found", file=sys.stderr)
        return 1
    cells = [cell for cell in CELLS if not given.only or any(fnmatch(cell.name, name) for name in given.only)]
    held = [_try(cell, given.seconds, given.rate) for cell in cells]
    print(f"{sum(held)} of {len(held)} cells held")
    return 0 if held and all(held) else 1


def _try(cell: Cell, seconds: float, rate: float) -> bool:
    """Print the figures of one cell."""
    with TemporaryDirectory(prefix="lcp-chaos-") as place:
        directory = Path(place)
        with Server(directory) as server:
            settings = {
                "DATABASE_URL": server.url, "SCENARIO": "long_horizon", "PRODUCER_RATE": str(rate / cell.replicas),
                "SAMPLE_EVERY_S": "1", "WORKER_COUNT": str(WORKERS),
                **cell.settings,
            }  # fmt: skip
            with Engine(server.url):
                pass  # both replicas of a fleet would create the tables
            with Fleet(directory, cell.replicas, settings) as fleet:
                baseline, recovery = _measure(cell, fleet, server, seconds)
                shutdown = fleet.end()
                ended = fleet.ended_badly()
                jobs, said = fleet.acknowledged, fleet.said
            _drain(server.url, directory, settings)
            lost, twice = _count(server.url, jobs)
    began_again = said.count("the runner ended")
    beside = f", the runner was begun again {began_again} times" if began_again else ""
    beside += f", adapters ended with {ended}" if ended else ""
    print(
        f"{cell.name}: recovery {recovery:.0f}/s of {baseline:.0f}/s ({recovery / max(baseline, 1e-9):.2f}), "
        f"shutdown {shutdown:.1f} s, {len(jobs)} acknowledged, {lost} lost, {twice} twice{beside}",
        flush=True,
    )
    return bool(jobs) and not lost and not twice


def _measure(cell: Cell, fleet: Fleet, server: Server, seconds: float) -> tuple[float, float]:
    """Jobs completed a second before the stress and after it."""
    began = time.monotonic()
    while not _completed(server.url) and time.monotonic() - began < STARTED_SECONDS:
        time.sleep(0.1)
    time.sleep(seconds * WARM)
    baseline = _throughput(server.url, seconds * BASELINE)
    cell.stress(fleet, server, seconds * STRESS)
    return baseline, _throughput(server.url, seconds * RECOVERY)


def _throughput(url: str, seconds: float) -> float:
    before, began = _completed(url), time.monotonic()
    time.sleep(seconds)
    return (_completed(url) - before) / (time.monotonic() - began)


def _completed(url: str) -> int:
    return _number(url, "SELECT CAST(coalesce(sum(succeeded), 0) AS bigint) FROM missions")


def _count(url: str, acknowledged: list[int]) -> tuple[int, int]:
    """Acknowledged jobs that have not succeeded, and jobs that have succeeded twice."""
    with psycopg.connect(url) as connection:
        done = {int(row[0]) for row in connection.execute("SELECT id FROM jobs WHERE state = 'succeeded'")}
    again = "SELECT job_id FROM events WHERE event = 'succeeded' GROUP BY job_id HAVING count(*) > 1"
    return len(set(acknowledged) - done), _number(url, f"SELECT count(*) FROM ({again}) AS again")


def _drain(url: str, directory: Path, settings: Mapping[str, str]) -> None:
    """Let an adapter that enqueues nothing finish what is left."""
    with Fleet(directory, 1, {**settings, "PRODUCER_MODE": "fixed", "PRODUCER_RATE": "0"}) as fleet:
        began = time.monotonic()
        while _left(url) and time.monotonic() - began < DRAIN_SECONDS:
            time.sleep(0.2)
        fleet.end()


def _left(url: str) -> int:
    return _number(url, "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')")


def _number(url: str, query: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    raise SystemExit(main())
