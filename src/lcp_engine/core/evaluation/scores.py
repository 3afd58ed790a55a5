"""Judge the runs of an evaluation, sum them up, and compare two evaluations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb, sqrt
from typing import TypeAlias

from lcp_engine.core.echo import Told, is_echo
from lcp_engine.core.evaluation.suite import Expectation
from lcp_engine.core.json_values import JsonObject, JsonValue

_Z = 1.959964
"""Of a two-sided interval of 95%."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A mission of an evaluation, as its history tells it."""

    case: str
    planner: str
    repetition: int
    mission_id: int
    status: str
    outcome: str | None
    error_code: str | None
    """Of the job or question that failed and ended it."""
    unfulfilled: bool
    """Whether it completed although a change that it asked for was refused or failed."""
    answer: str
    """What it ended with: summary, issues, recommendations, result."""
    summary: str
    """The words of the planner in it."""
    told: Told
    """The goal, and what else the planner was told when it answered."""
    read: frozenset[str]
    """The files that it read, relative to its root."""
    turns: int
    corrections: int
    input_tokens: int
    output_tokens: int
    seconds: float | None
    """From its launch to its end; None while it has none."""
    cpu_seconds: float | None
    """Of the process that ran it, and those that it started; None if it was killed and therefore not measured."""


@dataclass(frozen=True)
class Score:
    """How far a run did what was expected of it."""

    run: Run
    facts: int
    """How many of the facts it gave, of `facts_asked`."""
    facts_asked: int
    files: int
    """How many of the files it read that it had to read, of `files_named`."""
    files_named: int
    cause: str | None
    """Why it is not right: `unfinished`, `waits`, how the mission ended, `unfulfilled`, `unread`, `echo`, `wrong`."""

    @property
    def is_right(self) -> bool:
        """Whether it completed, read what it had to read and gave every fact."""
        return self.cause is None

    @property
    def json(self) -> JsonObject:
        run = self.run
        return {
            "mission": run.case, "planner": run.planner, "repetition": run.repetition, "mission_id": run.mission_id,
            "right": self.is_right, "cause": self.cause, "status": run.status, "outcome": run.outcome,
            "error_code": run.error_code,
            "facts": self.facts, "facts_asked": self.facts_asked,
            "files": self.files, "files_named": self.files_named,
            "turns": run.turns, "corrections": run.corrections,
            "input_tokens": run.input_tokens, "output_tokens": run.output_tokens,
            "seconds": run.seconds, "cpu_seconds": run.cpu_seconds, "answer": run.answer,
        }  # fmt: skip


def judge(run: Run, expect: Expectation) -> Score:
    """Compare a run with what is expected of it."""
    import re2  # type: ignore[import-untyped]  # ships no types; slow to load and rarely needed

    facts = sum(re2.search(fact, run.answer) is not None for fact in expect.facts)
    files = len(run.read.intersection(expect.reads))
    cause = _cause(run)
    if cause is None and files < len(set(expect.reads)):
        cause = "unread"
    if cause is None and facts < len(expect.facts):
        cause = "echo" if is_echo(run.summary, run.told) else "wrong"
    return Score(run, facts, len(expect.facts), files, len(set(expect.reads)), cause)


def _cause(run: Run) -> str | None:
    match run.status:
        case "completed":
            return "unfulfilled" if run.unfulfilled else None
        case "running":
            return "unfinished"
        case "waiting":
            return "waits"
        case _:
            return run.error_code or run.outcome or run.status


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
class Summary:
    """The runs of one planner."""

    planner: str
    scores: Sequence[Score]

    @cached_property
    def right(self) -> Share:
        return Share(sum(score.is_right for score in self.scores), len(self.scores))

    @cached_property
    def completed(self) -> Share:
        return Share(sum(score.run.status == "completed" for score in self.scores), len(self.scores))

    @cached_property
    def facts(self) -> Share:
        return Share(sum(one.facts for one in self.scores), sum(one.facts_asked for one in self.scores))

    @cached_property
    def files(self) -> Share:
        return Share(sum(one.files for one in self.scores), sum(one.files_named for one in self.scores))

    @cached_property
    def causes(self) -> Mapping[str, int]:
        """How many runs are not right, by the cause; the most frequent first."""
        return dict(Counter(one.cause for one in self.scores if one.cause is not None).most_common())

    def mean(self, figure: Figure) -> float | None:
        """The mean of what was measured."""
        found = [value for score in self.scores if (value := figure(score)) is not None]
        return sum(found) / len(found) if found else None

    @property
    def json(self) -> JsonObject:
        means: dict[str, JsonValue] = {
            name: None if (mean := self.mean(figure)) is None else round(mean, 3)
            for name, figure in FIGURES.items()
        }
        return {
            "planner": self.planner, "runs": len(self.scores), "right": self.right.json,
            "completed": self.completed.json, "facts": self.facts.json, "files": self.files.json,
            "causes": dict(self.causes), "mean": means,
        }  # fmt: skip


Figure: TypeAlias = Callable[[Score], float | None]
FIGURES: Mapping[str, Figure] = {
    "turns": lambda score: score.run.turns,
    "corrections": lambda score: score.run.corrections,
    "input_tokens": lambda score: score.run.input_tokens,
    "output_tokens": lambda score: score.run.output_tokens,
    "seconds": lambda score: score.run.seconds,
    "cpu_seconds": lambda score: score.run.cpu_seconds,
}
"""What a run takes: less is better."""


def summarize(scores: Iterable[Score]) -> list[Summary]:
    """A summary for each planner, in the order in which they appear."""
    by_planner: dict[str, list[Score]] = {}
    for score in scores:
        by_planner.setdefault(score.run.planner, []).append(score)
    return [Summary(planner, found) for planner, found in by_planner.items()]


@dataclass(frozen=True)
class Difference:
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


def compare(old: Sequence[Score], new: Sequence[Score]) -> list[Difference]:
    """What is better or worse in `new`, figure by figure, over the missions that both have.

    Repetitions of a mission count as one: their mean. With one planner in each evaluation, those are compared whatever
    their names are; else planners of one name.
    """
    single = len(summarize(old)) == len(summarize(new)) == 1
    before, after = _by_mission(old, single=single), _by_mission(new, single=single)
    shared = [mission for mission in before if mission in after]
    more: Mapping[str, Figure] = {"right": _is_right, "facts": _facts, "files": _files}
    found = [_difference(name, figure, before, after, shared, sign=1) for name, figure in more.items()]
    return found + [
        _difference(name, figure, before, after, shared, sign=-1) for name, figure in FIGURES.items()
    ]


def _is_right(score: Score) -> float:
    return float(score.is_right)


def _facts(score: Score) -> float | None:
    return score.facts / score.facts_asked if score.facts_asked else None


def _files(score: Score) -> float | None:
    return score.files / score.files_named if score.files_named else None


def _by_mission(scores: Sequence[Score], *, single: bool) -> dict[str, Summary]:
    found: dict[str, list[Score]] = {}
    for score in scores:
        name = score.run.case if single else f"{score.run.case} ({score.run.planner})"
        found.setdefault(name, []).append(score)
    return {name: Summary(name, runs) for name, runs in found.items()}


def _difference(
    name: str,
    figure: Figure,
    before: Mapping[str, Summary],
    after: Mapping[str, Summary],
    shared: Sequence[str],
    *,
    sign: int,
) -> Difference:
    pairs = {
        mission: (old, new)
        for mission in shared
        if (old := before[mission].mean(figure)) is not None
        and (new := after[mission].mean(figure)) is not None
    }
    return Difference(
        name,
        better=tuple(mission for mission, (old, new) in pairs.items() if (new - old) * sign > 0),
        worse=tuple(mission for mission, (old, new) in pairs.items() if (new - old) * sign < 0),
        old=_mean([old for old, _ in pairs.values()]),
        new=_mean([new for _, new in pairs.values()]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
