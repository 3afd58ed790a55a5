"""Let 8 processes enqueue into one SQLite file: none starves, and none waits for long."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.figures import Figure, Goal
from benchmarks.setting import PROJECT, Setting
from lcp_engine import Engine

WRITERS = 8
SECONDS = 10.0
FAIR = "8 processes enqueue on one SQLite file: the slowest to the fastest"
WAIT = "8 processes enqueue on one SQLite file: the longest wait"


def run(setting: Setting) -> list[Figure]:
    """Ten seconds, long enough to starve. A process that finds the database locked ends the run."""
    with setting.sqlite() as url:
        Engine(url).close()  # create the file
        ended = _crowd(url, SECONDS)
    counts, waits = zip(*ended, strict=True)
    share = min(counts) / max(counts)
    longest, usual = max(waits), statistics.median(waits)
    together = f"together {sum(counts) / SECONDS:,.0f} jobs/s"
    return [
        Figure(FAIR, "jobs", min(counts), "the fastest", max(counts), share, Goal(0.5, at_least=True), together),
        Figure(
            WAIT, "ms", longest, value=longest, goal=Goal(200, at_least=False, unit="ms"),
            note=f"of the median process: {usual:.0f}",
        ),
    ]  # fmt: skip


def _crowd(url: str, seconds: float) -> list[tuple[int, float]]:
    """What each process enqueued, and its longest wait in milliseconds."""
    command = [sys.executable, "-m", "benchmarks.crowd_writer", url, str(seconds)]
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) for _ in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    told = [writer.communicate()[0] for writer in writers]
    failed = [writer.returncode for writer in writers if writer.returncode]
    if failed:
        raise SystemExit(f"{len(failed)} of {WRITERS} processes that enqueue side by side failed")
    return [(int(count), float(wait)) for count, wait in map(json.loads, told)]
