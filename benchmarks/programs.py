"""Drain jobs whose kind is a program, or Python in a confined process, and the same in the runner's process."""

from __future__ import annotations

from functools import partial

from benchmarks.figures import Contender, Figure, Goal, race, ratio
from benchmarks.setting import Setting


def run(setting: Setting) -> list[Figure]:
    """Backlogs that take long beside the start of a process, which is part of the time."""
    backlog = int(20_000 * setting.seconds)
    contenders: dict[str, Contender] = {
        kind: partial(_microseconds, setting, kind, backlog)
        for kind in ("bench.add", "bench.confined", "bench.external")
    }
    measured = race(contenders, setting.rounds)
    plain, confined = measured["bench.add"], measured["bench.confined"]
    more = sorted(one - other for one, other in zip(confined, plain, strict=True))[len(plain) // 2]
    external = [1e6 / one for one in measured["bench.external"]]
    external_goal = Goal(3000, at_least=True, unit="jobs/s")
    rate = sorted(external)[len(external) // 2]
    alone = ratio("a kind in Python, in a confined process", "µs", confined, plain, peer="in the runner")
    return [
        alone,
        Figure(
            "a kind in Python, in a confined process: more than in the runner", "µs", value=more,
            goal=Goal(150, at_least=False, unit="µs"),
        ),
        Figure("drain jobs of a long-lived program in Python, SQLite", "jobs/s", rate, value=rate, goal=external_goal),
    ]  # fmt: skip


def _microseconds(setting: Setting, kind: str, backlog: int) -> float:
    with setting.sqlite() as url:
        return setting.run_engine("engine_programs", url, kind, backlog)
