"""Time counts and lists beside many finished jobs, their pruning, and how long a concurrent writer waits."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from benchmarks.ended import fill_with_ended
from benchmarks.figures import Figure, Goal
from benchmarks.looking import look
from benchmarks.setting import PROJECT, Setting
from lcp_engine import Engine
from lcp_engine.features.upkeep.store.prune import prune

MISSIONS, EACH = 101, 10_000
"""The newest mission stays: it has the highest id of a job."""
HALF = MISSIONS // 2
SECONDS_ALONE = 5.0


def run(setting: Setting) -> list[Figure]:
    figures = _measure("SQLite", setting.sqlite)
    if setting.postgres is not None:
        figures += _measure("PostgreSQL", setting.new_postgres)
    return figures


def _measure(name: str, new: Callable[[], AbstractContextManager[str]]) -> list[Figure]:
    """Prune half of the missions while nothing else writes, the others beside a writer."""
    with new() as url, Engine(url) as engine:
        fill_with_ended(engine.instance.database, MISSIONS, EACH)
        looks = look(engine, HALF, f"beside {MISSIONS * EACH:,} finished jobs, {name}")
        quick = _prune(engine, HALF)
        with _writer(url) as alone:
            time.sleep(SECONDS_ALONE)
        with _writer(url) as beside:
            slow = _prune(engine, MISSIONS - 1)
    return [
        *looks,
        Figure(
            f"prune {HALF * EACH:,} finished jobs with attempts and events, {name}", "rows/s", quick, value=quick,
            goal=Goal(700_000, at_least=True, unit="rows/s"), note=f"beside a writer: {slow:,.0f}",
        ),
        Figure(
            f"the longest wait of a writer beside pruning, {name}", "ms", beside["longest"], value=beside["longest"],
            goal=Goal(10, at_least=False, unit="ms"),
            note=f"without pruning: {alone['longest']:.1f}; medians {beside['median']:.2f} and {alone['median']:.2f}",
        ),
    ]  # fmt: skip


def _prune(engine: Engine, last: int) -> float:
    """Rows per second. Mission N ended at time N."""
    began = time.perf_counter()
    done = prune(engine.instance.database, ended_before=last + 1)
    seconds = time.perf_counter() - began
    if done.missions != HALF:
        raise SystemExit(f"{done.missions} missions were pruned; expected {HALF}")
    return done.rows / seconds


@contextmanager
def _writer(url: str) -> Iterator[dict[str, float]]:
    """Enqueue one job after the other in another process; filled with its waits in milliseconds at the end."""
    command = [sys.executable, "-m", "benchmarks.steady_writer", url]
    pipe = subprocess.PIPE
    waits: dict[str, float] = {}
    with subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
        yield waits
        told = writer.communicate()[0]
    if writer.returncode:
        raise SystemExit(f"the process that enqueues beside the prune ended with {writer.returncode}")
    _, waits["longest"], waits["median"] = json.loads(told)
