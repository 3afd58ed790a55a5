"""Compare two evaluations mission by mission: what is better or worse, and the odds of so much by chance. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

from lcp_engine.core.json_values import JsonObject
from lcp_engine.features.evaluation.scores import Score
from lcp_engine.features.evaluation.summary import FIGURES, Figure, PlannerSummary, summarize_scores


@dataclass(frozen=True)
class FigureDifference:
    """In how many missions a figure became better or worse, and the odds of so much by chance."""

    figure: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    old: float | None
    """The mean over the missions that both evaluations have."""
    new: float | None

    @property
    def odds(self) -> float:
        """The sign test, exact and two-sided: how probable a split at least as uneven is if nothing has changed."""
        n, fewer = len(self.better) + len(self.worse), min(len(self.better), len(self.worse))
        return min(1.0, 2 * sum(comb(n, k) for k in range(fewer + 1)) / (1 << n))

    @property
    def json(self) -> JsonObject:
        return {
            "figure": self.figure, "old": self.old, "new": self.new,
            "better": list(self.better), "worse": list(self.worse), "odds": round(self.odds, 6),
        }  # fmt: skip


def compare_scores(old: Sequence[Score], new: Sequence[Score]) -> list[FigureDifference]:
    """What is better or worse in `new`, figure by figure, over the missions that both have.

    Repetitions of a mission count as one: their mean. With one planner in each evaluation, those are compared whatever
    their names are; else planners of one name.
    """
    single = len(summarize_scores(old)) == len(summarize_scores(new)) == 1
    before, after = _by_mission(old, single=single), _by_mission(new, single=single)
    shared = [mission for mission in before if mission in after]
    found = [_difference(name, figure, before, after, shared, sign=1) for name, figure in _MORE.items()]
    has_one_currency = (
        len({score.record.currency for score in (*old, *new) if score.record.cost is not None}) <= 1
    )
    return found + [
        _difference(name, figure, before, after, shared, sign=-1)
        for name, figure in FIGURES.items()
        if name != "cost" or has_one_currency
    ]


def _share(count: int, of: int) -> float | None:
    return count / of if of else None


_MORE: Mapping[str, Figure] = {
    "right": lambda score: float(score.is_right),
    "completed": lambda score: float(score.record.status == "completed"),
    "facts": lambda score: _share(score.facts, score.facts_asked),
    "files": lambda score: _share(score.files, score.files_named),
    "kinds": lambda score: _share(score.kinds, score.kinds_needed),
    "checks": lambda score: float(score.passes_check) if score.has_check else None,
}
"""What a trial is for: more is better."""


def _by_mission(scores: Sequence[Score], *, single: bool) -> dict[str, PlannerSummary]:
    found: dict[str, list[Score]] = {}
    for score in scores:
        name = score.record.mission if single else f"{score.record.mission} ({score.record.planner})"
        found.setdefault(name, []).append(score)
    return {name: PlannerSummary(name, runs) for name, runs in found.items()}


def _difference(
    name: str,
    figure: Figure,
    before: Mapping[str, PlannerSummary],
    after: Mapping[str, PlannerSummary],
    shared: Sequence[str],
    *,
    sign: int,
) -> FigureDifference:
    pairs = {
        mission: (old, new)
        for mission in shared
        if (old := before[mission].mean(figure)) is not None
        and (new := after[mission].mean(figure)) is not None
    }
    return FigureDifference(
        name,
        better=tuple(mission for mission, (old, new) in pairs.items() if (new - old) * sign > 0),
        worse=tuple(mission for mission, (old, new) in pairs.items() if (new - old) * sign < 0),
        old=_mean([old for old, _ in pairs.values()]),
        new=_mean([new for _, new in pairs.values()]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 9) if values else None
