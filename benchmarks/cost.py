"""Measure what a runner costs: memory, disk, CPU while idle, turns of a long mission."""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.engine_drain import fill
from benchmarks.engine_runner import runner, until_done
from benchmarks.figures import Figure, Goal, race, ratio
from benchmarks.kinds import spent, start
from benchmarks.setting import Setting
from lcp_engine import Engine

JOBS = 100_000
CHUNK = 5_000
IDLE_SECONDS = 20.0
TURNS = 1000
SOME = 100
"""The figure of a turn is the median of this many turns, which end with it."""
LATE_TURN = f"CPU of turn {TURNS:,} of a mission with the script planner"


def run(setting: Setting) -> list[Figure]:
    return [*_weigh(setting), _idle(setting), _turns(setting)]


def _weigh(setting: Setting) -> list[Figure]:
    with setting.sqlite() as url:
        with Engine(url) as engine:
            for _ in range(JOBS // CHUNK):
                engine.instance.database.write(lambda tx: fill(tx, CHUNK))
        memory = setting.run_engine("engine_growth", url)
        sizes = _sizes(Path(url.removeprefix("sqlite:///")))
    disk = sum(sizes.values()) / JOBS
    note = ", ".join(f"{name} {size / JOBS:.0f}" for name, size in sizes.items() if size >= JOBS)
    return [
        Figure(
            f"memory of a runner after {JOBS:,} jobs", "MiB", memory, value=memory,
            goal=Goal(80, at_least=False, unit="MiB"),
        ),
        Figure(
            "disk for a finished no-op job, history included, SQLite", "B", disk, value=disk,
            goal=Goal(600, at_least=False, unit="B"), note=note,
        ),
    ]  # fmt: skip


def _sizes(path: Path) -> dict[str, int]:
    """The bytes of each table and index, the largest first. No engine may have the file open in this process."""
    connection = sqlite3.connect(path)
    sizes = connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC")
    found = {str(name).replace("sqlite_autoindex_", "key of "): int(size) for name, size in sizes}
    connection.close()
    return found


def _idle(setting: Setting) -> Figure:
    with setting.sqlite() as url, Engine(url) as engine, runner(url) as idle:
        until_done(engine, engine.enqueue(start.kind))  # from now on the runner is up
        before = _cpu_seconds(idle.pid)
        time.sleep(IDLE_SECONDS)
        used = _cpu_seconds(idle.pid) - before
    what = f"CPU of an idle runner in {IDLE_SECONDS:g} s"
    return Figure(
        what, "s", used, value=used, goal=Goal(0.1, at_least=False, unit="s"), note="a look a second"
    )


def _turns(setting: Setting) -> Figure:
    """CPU time, which other processes hardly affect; a turn is what is spent between the starts of two jobs."""
    late: list[float] = []

    def early() -> float:
        with setting.sqlite() as url, Engine(url) as engine, TemporaryDirectory() as root:
            mission = engine.launch(_long_mission(), root=root)
            engine.work(until_idle=True, mission_id=mission.id)
            jobs = engine.jobs(mission_id=mission.id, kinds=[spent.kind])
        at = [_number((job.result or {})["cpu"]) for job in jobs]
        costs = [(then - now) / 1000 for now, then in pairwise(at)]
        late.append(statistics.median(costs[-SOME:]))
        return statistics.median(costs[9 : 9 + SOME])

    measured = race({"early": early}, setting.rounds)["early"]
    return ratio(LATE_TURN, "µs", late, measured, peer="turn 10", goal=Goal(1.2, at_least=False))


def _long_mission() -> dict[str, JsonValue]:
    replies: list[JsonValue] = [
        {
            "ok": True,
            "action": "create_followup_jobs",
            "new_jobs": [{"kind": spent.kind, "params": {"number": n}}],
        }
        for n in range(TURNS)
    ]
    replies.append({"ok": True, "action": "mission_complete", "summary": "Measured."})
    most = TURNS + 2
    return {
        "goal": "Be measured.", "planner": {"type": "script", "replies": replies},
        "limits": {"max_turns": most, "max_jobs": most},
    }  # fmt: skip


def _cpu_seconds(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _number(value: JsonValue) -> int:
    assert isinstance(value, int)
    return value
