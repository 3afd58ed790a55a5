"""Measure what a step of a plan costs, in a plan of 100 steps and in one of 10,000; and a job of a planner's plan."""

from __future__ import annotations

import time
from collections.abc import Callable
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.figures import Figure, Goal, race, ratio
from benchmarks.kinds import nothing
from benchmarks.setting import Setting
from lcp_engine import Engine
from lcp_engine.engine import missions
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of

FEW, MANY = 100, 10_000
GROWTH = 1.5
IN_PLAN = 1.2


def run(setting: Setting) -> list[Figure]:
    steps = [_compare(setting, "a chain", _before), _compare(setting, "a graph", _above)]
    return [*steps, _compare_with_queue(setting)]


def _compare(setting: Setting, shape: str, after: Callable[[int], list[int]]) -> Figure:
    """CPU time, which other processes hardly affect."""
    contenders = {str(count): lambda count=count: _measure(setting, count, after) for count in (FEW, MANY)}
    measured = race(contenders, setting.rounds)
    what = f"CPU of a step in a plan of {MANY:,} steps, {shape}, SQLite"
    goal = Goal(GROWTH, at_least=False)
    return ratio(what, "µs", measured[str(MANY)], measured[str(FEW)], peer=f"of {FEW} steps", goal=goal)


def _measure(setting: Setting, count: int, after: Callable[[int], list[int]]) -> float:
    """Microseconds of CPU for each step, from the first claim to the end of the mission."""
    with setting.sqlite() as url, Engine(url) as engine, TemporaryDirectory() as root:
        steps: list[JsonValue] = [
            {
                "id": f"step-{number:05}",
                "tool": nothing.kind,
                "parameters": {},
                "dependencies": [f"step-{before:05}" for before in after(number)],
            }
            for number in range(count)
        ]
        mission = engine.launch({"goal": "Be measured.", "plan": {"steps": steps}}, root=root)
        began = time.process_time()
        engine.work(until_idle=True)
        took = time.process_time() - began
        assert engine.mission(mission.id).outcome == "plan_complete"
    return took / count * 1_000_000


def _compare_with_queue(setting: Setting) -> Figure:
    contenders = {name: lambda name=name: _drain(setting, name == "plan") for name in ("plan", "queue")}
    measured = race(contenders, setting.rounds)
    what, goal = f"CPU of one of {MANY:,} jobs of a planner's plan, SQLite", Goal(IN_PLAN, at_least=False)
    return ratio(what, "µs", measured["plan"], measured["queue"], peer="without a plan", goal=goal)


def _drain(setting: Setting, in_plan: bool) -> float:
    """Microseconds of CPU for each job that nothing waits for, of a planner's plan or of a queue."""
    with setting.sqlite() as url, Engine(url) as engine, TemporaryDirectory() as root:
        mission = None
        if in_plan:
            mission = engine.launch({"goal": "Be measured.", "planner": "human"}, root=root).id
            engine.work(until_idle=True)

        def fill(tx: Tx) -> None:
            ledger = ledger_of(tx)
            known = missions.open_queue(ledger, "jobs") if mission is None else mission
            for _ in range(MANY):
                missions.enqueue(ledger, nothing, known, {}, name=None, priority=0, run_after=None)

        engine.instance.database.write(fill)
        began = time.process_time()
        engine.work(until_idle=True)
        took = time.process_time() - began
        assert len(engine.jobs(kinds=[nothing.kind], states=["succeeded"])) == MANY
    return took / MANY * 1_000_000


def _before(number: int) -> list[int]:
    return [number - 1] if number else []


def _above(number: int) -> list[int]:
    """Two steps before most of them, as in a tree whose branches meet."""
    return sorted({before for before in ((number - 1) // 2, number - 7) if 0 <= before < number})
