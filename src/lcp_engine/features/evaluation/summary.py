"""Sum up the trials of each planner: shares with their intervals, and the means of what trials take. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import sqrt
from typing import TypeAlias

from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.core.limits.money import amount_text
from lcp_engine.features.evaluation.scores import Score

_Z = 1.959964
"""Of a two-sided interval of 95%."""


@dataclass(frozen=True)
class Share:
    """So many of so many, with the interval in which the true share is by 95% (Wilson, 1927)."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """Also for few: 3 of 3 are 44% to 100%."""
        if not self.of:
            return 0.0, 1.0
        share, n, zz = self.count / self.of, self.of, _Z * _Z
        middle, half = share + zz / (2 * n), _Z * sqrt(share * (1 - share) / n + zz / (4 * n * n))
        low, high = (middle - half) / (1 + zz / n), (middle + half) / (1 + zz / n)
        return max(0.0, low) if self.count else 0.0, min(1.0, high) if self.count < n else 1.0

    @property
    def json(self) -> JsonObject:
        low, high = self.interval
        return {"count": self.count, "of": self.of, "low": round(low, 4), "high": round(high, 4)}


@dataclass(frozen=True)
class PlannerSummary:
    """The trials of one planner."""

    planner: str
    scores: Sequence[Score]

    @cached_property
    def right(self) -> Share:
        return Share(sum(score.is_right for score in self.scores), len(self.scores))

    @cached_property
    def completed(self) -> Share:
        return Share(sum(score.record.status == "completed" for score in self.scores), len(self.scores))

    @cached_property
    def facts(self) -> Share:
        return Share(sum(one.facts for one in self.scores), sum(one.facts_asked for one in self.scores))

    @cached_property
    def files(self) -> Share:
        return Share(sum(one.files for one in self.scores), sum(one.files_named for one in self.scores))

    @cached_property
    def kinds(self) -> Share:
        return Share(sum(one.kinds for one in self.scores), sum(one.kinds_needed for one in self.scores))

    @cached_property
    def checks(self) -> Share:
        """Of the trials that a check program judges, those that pass it."""
        checked = [score for score in self.scores if score.has_check]
        return Share(sum(score.passes_check for score in checked), len(checked))

    @cached_property
    def over_context(self) -> Share:
        """Of the prompts, those that left too little of the model's context for the reply."""
        records = [score.record for score in self.scores]
        return Share(sum(one.over_context for one in records), sum(one.prompts for one in records))

    @cached_property
    def causes(self) -> Mapping[str, int]:
        """How many trials are not right, by the cause; the most frequent first."""
        return dict(Counter(one.cause for one in self.scores if one.cause is not None).most_common())

    @cached_property
    def missions(self) -> Mapping[str, Share]:
        """The share of right trials by mission."""
        of = Counter(score.record.mission for score in self.scores)
        right = Counter(score.record.mission for score in self.scores if score.is_right)
        return {mission: Share(right[mission], count) for mission, count in of.items()}

    @cached_property
    def cost(self) -> Decimal | None:
        """Of all trials; None if none had a price, or they had not one currency."""
        costs = [score.record.cost for score in self.scores if score.record.cost is not None]
        return sum(costs, Decimal(0)) if costs and self.currency is not None else None

    @property
    def currency(self) -> str | None:
        """The currency of all costs; None if there are none, or several."""
        found = {score.record.currency for score in self.scores if score.record.cost is not None}
        return next(iter(found)) if len(found) == 1 else None

    def mean(self, figure: Figure) -> float | None:
        """The mean of what was measured."""
        found = [value for score in self.scores if (value := figure(score)) is not None]
        return sum(found) / len(found) if found else None

    @property
    def json(self) -> JsonObject:
        means: dict[str, JsonValue] = {
            name: None if (mean := self.mean(figure)) is None else round(mean, _DIGITS.get(name, 3))
            for name, figure in FIGURES.items()
        }
        return {
            "planner": self.planner, "trials": len(self.scores), "right": self.right.json,
            "completed": self.completed.json, "facts": self.facts.json, "files": self.files.json,
            "kinds": self.kinds.json, "checks": self.checks.json, "over_context": self.over_context.json,
            "causes": dict(self.causes), "cost": None if self.cost is None else amount_text(self.cost),
            "currency": self.currency, "mean": means,
            "missions": {name: [share.count, share.of] for name, share in self.missions.items()},
        }  # fmt: skip


_DIGITS = {"cost": 9}


def _cost(score: Score) -> float | None:
    return None if score.record.cost is None else float(score.record.cost)


Figure: TypeAlias = Callable[[Score], float | None]
FIGURES: Mapping[str, Figure] = {
    "turns": lambda score: score.record.turns,
    "corrections": lambda score: score.record.corrections,
    "over_context": lambda score: score.record.over_context,
    "input_tokens": lambda score: score.record.input_tokens,
    "output_tokens": lambda score: score.record.output_tokens,
    "cost": _cost,
    "seconds": lambda score: score.record.seconds,
    "cpu_seconds": lambda score: score.record.cpu_seconds,
}
"""What a trial takes: less is better."""


def summarize_scores(scores: Iterable[Score]) -> list[PlannerSummary]:
    """A summary for each planner, in the order in which they appear."""
    by_planner: dict[str, list[Score]] = {}
    for score in scores:
        by_planner.setdefault(score.record.planner, []).append(score)
    return [PlannerSummary(planner, found) for planner, found in by_planner.items()]
