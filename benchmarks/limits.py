"""Measure what limits cost an unlimited kind, and how exactly four runners together keep to a rate."""

from __future__ import annotations

from functools import partial

from benchmarks.figures import Figure, Goal, race, ratio
from benchmarks.setting import Setting

PER_SECOND = 100
KINDS = 50
SECONDS = 10


def run(setting: Setting) -> list[Figure]:
    """A drain beside limited kinds that wait, one of a kind whose limit is never met, and a rate over processes."""
    backlog = int(25_000 * setting.seconds)
    measured = race(
        {name: partial(_drain, setting, name, backlog) for name in ("plain", "beside", "unmet")},
        setting.rounds,
    )
    starts = [_rate(setting) for _ in range(min(2, setting.rounds))]
    worst = max(starts, key=lambda rate: abs(rate - PER_SECOND))
    off = 100 * abs(worst - PER_SECOND) / PER_SECOND
    return [
        ratio(
            f"drain no-op jobs beside {KINDS} limited kinds that wait, SQLite",
            "jobs/CPU s",
            measured["beside"],
            measured["plain"],
            peer="without them",
            goal=Goal(0.95, at_least=True),
        ),
        ratio(
            "drain no-op jobs of a kind whose limit is never met, SQLite",
            "jobs/CPU s",
            measured["unmet"],
            measured["plain"],
            peer="without a limit",
        ),
        Figure(
            f"{PER_SECOND} starts a second over 4 runners, SQLite: off by",
            "%",
            off,
            value=off,
            goal=Goal(2, at_least=False, unit="%"),
            note=f"{worst:.2f} starts/s",
        ),
    ]


def _drain(setting: Setting, how: str, backlog: int) -> float:
    with setting.sqlite() as url:
        return setting.run_engine("engine_limits", url, how, backlog)


def _rate(setting: Setting) -> float:
    with setting.sqlite() as url:
        return setting.run_engine("engine_limits", url, "rate", PER_SECOND, SECONDS)
