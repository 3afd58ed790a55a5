"""Measure what a step of a plan costs, in a plan of 100 steps and in one of 10,000."""

from __future__ import annotations

import time
from collections.abc import Callable
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.figures import Figure, Goal, race, ratio
from benchmarks.kinds import nothing
from benchmarks.setting import Setting
from lcp_engine import Engine

FEW, MANY = 100, 10_000
GROWTH = 1.5


def run(setting: Setting) -> list[Figure]:
    return [_compare(setting, "a chain", _before), _compare(setting, "a graph", _above)]


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


def _before(number: int) -> list[int]:
    return [number - 1] if number else []


def _above(number: int) -> list[int]:
    """Two steps before most of them, as in a tree whose branches meet."""
    return sorted({before for before in ((number - 1) // 2, number - 7) if 0 <= before < number})
