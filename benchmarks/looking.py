"""Time counts and lists beside many finished jobs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from benchmarks.figures import Figure, Goal
from lcp_engine import Engine
from lcp_engine.store.queries import pages
from lcp_engine.store.queries.pages import JobFilter
from lcp_engine.store.queries.stats import overview_in

TIMES = 25
GOAL = Goal(2, at_least=False, unit="ms")


def look(engine: Engine, mission: int, what: str) -> list[Figure]:
    """Medians in milliseconds; `mission` is in the middle of the history."""
    return [
        Figure(f"{name} {what}", "ms", spent := _median(ask), value=spent, goal=GOAL)
        for name, ask in _questions(engine, mission).items()
    ]


def _questions(engine: Engine, mission: int) -> Mapping[str, Callable[[], object]]:
    read = engine.instance.database.read
    held, of_mission = JobFilter(None, ["held"]), JobFilter(mission)
    return {
        "missions, the newest 50": lambda: engine.missions(limit=50),
        "a mission with its counts": lambda: engine.mission(mission),
        "jobs of a mission, the first 20": lambda: engine.jobs(mission_id=mission, limit=20),
        "jobs of a mission, the newest 20": lambda: engine.jobs(
            mission_id=mission, limit=20, newest_first=True
        ),
        "failed jobs of a mission": lambda: engine.jobs(mission_id=mission, states=["failed"]),
        "failed jobs of all missions": lambda: engine.jobs(states=["failed"], limit=20, newest_first=True),
        "held jobs": lambda: engine.jobs(states=["held"]),
        "the page's missions": lambda: read(
            lambda tx: pages.page_missions(tx, before=None, status="", limit=30)
        ),
        "the page's missions by text": lambda: read(
            lambda tx: (
                pages.page_missions(tx, before=None, status="", text="nowhere", limit=30),
                pages.count_missions(tx, "nowhere"),
            )
        ),
        "the page's jobs": lambda: read(
            lambda tx: pages.page_jobs(tx, JobFilter(), behind=None, limit=50, newest_first=True)
        ),
        "the page's jobs of a mission": lambda: read(
            lambda tx: pages.page_jobs(tx, of_mission, behind=None, limit=50)
        ),
        "the page's inbox": lambda: read(lambda tx: pages.page_jobs(tx, held, behind=None, limit=50)),
        "lcp db stats": lambda: read(lambda tx: overview_in(tx, None)),
    }


def _median(ask: Callable[[], object]) -> float:
    spent = []
    for _ in range(TIMES):
        began = time.perf_counter()
        ask()
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)
