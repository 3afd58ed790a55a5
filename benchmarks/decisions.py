"""Time from a person's decision to the start of the job that it lets run, in another process."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.engine_runner import runner
from benchmarks.figures import Contender, Figure, Goal, quantile, race
from benchmarks.kinds import numbered, start
from benchmarks.latency import note_commits, started_at
from benchmarks.setting import Setting
from lcp_engine import Engine

ARRIVAL = 0.02
LEAST = 20
SQLITE = "from a decision to the start of its job in another process, SQLite"
POSTGRES = "from a decision to the start of its job in another process, PostgreSQL"
MOST = 10.0
"""Milliseconds, from the call of `approve`."""


def run(setting: Setting) -> list[Figure]:
    """A person approves held jobs one by one, about every 20 ms; a runner in another process is idle in between."""
    decisions = max(LEAST, int(setting.seconds / ARRIVAL))
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(dir=setting.place)))
        ways = {SQLITE: stack.enter_context(_way(stack.enter_context(setting.sqlite()), place, decisions))}
        if setting.postgres is not None:
            url = stack.enter_context(setting.new_postgres())
            ways[POSTGRES] = stack.enter_context(_way(url, place, decisions))
        contenders: dict[str, Contender] = {name: partial(way.measure) for name, way in ways.items()}
        measured = race(contenders, setting.rounds)
    most = Goal(MOST, at_least=False, unit="ms")
    figures = []
    for name, way in ways.items():
        median, slow = statistics.median(measured[name]), quantile(way.from_call, 0.99)
        enqueued = f"a job that is enqueued: {statistics.median(way.enqueued):.2f}"
        note = f"from the commit: {statistics.median(way.from_commit):.2f}; {enqueued}"
        figures.append(Figure(name, "ms", median, value=median, goal=most, note=note))
        figures.append(Figure(f"{name}, 99 %", "ms", slow, value=slow, goal=most))
    return figures


@dataclass
class Way:
    """An engine with a runner in another process, and the measurements so far, in milliseconds."""

    engine: Engine
    place: Path
    decisions: int
    committed: list[int]
    from_call: list[float] = field(default_factory=list)
    from_commit: list[float] = field(default_factory=list)
    enqueued: list[float] = field(default_factory=list)
    """From the call of `enqueue` to the start, at the same time: what disk and machine allow."""

    def measure(self) -> float:
        """The median of some decisions, from the call to the start."""
        held = self._hold()
        called, committed, beside = list[int](), list[int](), list[tuple[int, int]]()
        for job_id in held:
            time.sleep(random.uniform(0.5, 1.5) * ARRIVAL)
            beside.append((time.monotonic_ns(), self.engine.enqueue(start.kind)))
            time.sleep(random.uniform(0.5, 1.5) * ARRIVAL)
            self.committed.clear()
            called.append(time.monotonic_ns())
            self.engine.approve(job_id)
            committed.append(self.committed[0])
        started = [started_at(self.engine, job_id) for job_id in held]
        from_call = [(at - then) / 1e6 for at, then in zip(started, called, strict=True)]
        self.from_call += from_call
        self.enqueued += [(started_at(self.engine, job_id) - then) / 1e6 for then, job_id in beside]
        self.from_commit += [(at - then) / 1e6 for at, then in zip(started, committed, strict=True)]
        return statistics.median(from_call)

    def _hold(self) -> list[int]:
        """A mission that waits with as many held jobs as decisions are measured; their ids."""
        jobs: list[JsonValue] = [
            {"kind": numbered.kind, "params": {"number": number}} for number in range(self.decisions)
        ]
        spec: dict[str, JsonValue] = {
            "goal": "Wait for a person.",
            "planner": {
                "type": "script",
                "replies": [
                    {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs},
                    {"ok": True, "action": "mission_complete", "summary": "measured"},
                ],
            },
            "policy": [{"kinds": [numbered.kind], "do": "hold"}],
            "limits": {"max_followups": self.decisions, "max_jobs": self.decisions},
        }
        mission = self.engine.launch(spec, root=self.place)
        while self.engine.mission(mission.id).status != "waiting":
            time.sleep(ARRIVAL)
        return [job.id for job in self.engine.jobs(mission_id=mission.id, states=["held"])]


@contextmanager
def _way(url: str, place: Path, decisions: int) -> Iterator[Way]:
    with Engine(url) as engine, runner(url):
        yield Way(engine, place, decisions, note_commits(engine.instance.database))
