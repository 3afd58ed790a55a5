"""Compare contenders in one run: interleaved rounds, medians, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Contender: TypeAlias = Callable[[], float]
"""One measurement of one contender, in the unit of its case."""


@dataclass(frozen=True)
class Goal:
    """The target of a figure: at least, or otherwise at most, `bound`."""

    bound: float
    at_least: bool
    unit: str = ""

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g} {self.unit}".strip()


@dataclass(frozen=True)
class Figure:
    """A row of the table. `value` is what the goal is about: the ratio of ours to theirs, or ours itself."""

    what: str
    unit: str
    ours: float | None = None
    peer: str = ""
    theirs: float | None = None
    value: float | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.goal is None or self.value is None:
            return ""
        return "met" if self.goal.is_met(self.value) else "missed"


def race(contenders: Mapping[str, Contender], rounds: int) -> dict[str, list[float]]:
    """The measurements of each contender. They take turns on the same machine; a different one starts each round."""
    names = list(contenders)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            measured[name].append(contenders[name]())
    return measured


def ratio(
    what: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    peer: str,
    goal: Goal | None = None,
) -> Figure:
    """Ours to theirs: the median of the rounds' ratios, which a machine that slows down for a while hardly affects."""
    value = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
    return Figure(what, unit, statistics.median(ours), peer, statistics.median(theirs), value, goal)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
