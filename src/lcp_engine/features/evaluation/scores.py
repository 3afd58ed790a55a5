"""Judge the trials of an evaluation: how far each did what was expected of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.limits.money import amount_text
from lcp_engine.features.evaluation.suite import Expectation


@dataclass(frozen=True)
class CheckResult:
    """What the check program of a mission said of a trial."""

    passes: bool
    said: str
    """How it ended, with the end of what it wrote; empty if it passes."""


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A trial as the history of its mission tells it."""

    mission: str
    """Its name in the suite."""
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
    is_echo: bool
    """Whether its summary repeats what the planner was told."""
    read: frozenset[str]
    """The files that it read, relative to its root."""
    used: frozenset[str]
    """The kinds whose jobs succeeded."""
    check: CheckResult | None
    """None if there is no check program, or it was not run."""
    turns: int
    corrections: int
    prompts: int
    """How many were sent to a model, with those that were asked again."""
    over_context: int
    """How many of the prompts left too little of the model's context for the reply, or were refused as too long."""
    input_tokens: int
    output_tokens: int
    cost: Decimal | None
    """By the prices of the configuration; None if a question had no price."""
    currency: str | None
    seconds: float | None
    """From its launch to its end; None while it has none."""
    cpu_seconds: float | None
    """Of the process that ran it, and those that it started; None if it was killed and therefore not measured."""


@dataclass(frozen=True)
class Score:
    """How far a trial did what was expected of it."""

    record: TrialRecord
    facts: int
    """How many of the facts it gave, of `facts_asked`."""
    facts_asked: int
    files: int
    """How many of the files it read that it had to read, of `files_named`."""
    files_named: int
    kinds: int
    """How many of the kinds it used that it had to use, of `kinds_needed`."""
    kinds_needed: int
    has_check: bool
    """Whether a check program judges it, besides."""
    cause: str | None
    """Why it is not right: how the mission ended, or `unfinished`, `waits`, `unfulfilled`, `unread`, `unused`, `echo`,
    `wrong`, `unchecked`, `check`."""

    @property
    def is_right(self) -> bool:
        """True if it completed, read and used what it had to, gave every fact, and passes the check program."""
        return self.cause is None

    @property
    def passes_check(self) -> bool:
        """True if its check program judged it, and it passed."""
        return self.record.check is not None and self.record.check.passes

    @property
    def json(self) -> JsonObject:
        record, check = self.record, self.record.check
        return {
            "mission": record.mission, "planner": record.planner, "repetition": record.repetition,
            "mission_id": record.mission_id, "right": self.is_right, "cause": self.cause, "status": record.status,
            "outcome": record.outcome, "error_code": record.error_code,
            "facts": self.facts, "facts_asked": self.facts_asked,
            "files": self.files, "files_named": self.files_named,
            "kinds": self.kinds, "kinds_needed": self.kinds_needed,
            "check": None if check is None else {"passes": check.passes, "said": check.said},
            "turns": record.turns, "corrections": record.corrections,
            "prompts": record.prompts, "over_context": record.over_context,
            "input_tokens": record.input_tokens, "output_tokens": record.output_tokens,
            "cost": None if record.cost is None else amount_text(record.cost), "currency": record.currency,
            "seconds": record.seconds, "cpu_seconds": record.cpu_seconds, "answer": record.answer,
        }  # fmt: skip


def judge(record: TrialRecord, expect: Expectation) -> Score:
    """Compare a trial with what is expected of it."""
    import re2  # type: ignore[import-untyped]  # ships no types; slow to load and rarely needed

    facts = sum(re2.search(fact, record.answer) is not None for fact in expect.facts)
    files, kinds = set(expect.reads), set(expect.uses)
    score = Score(
        record,
        facts=facts,
        facts_asked=len(expect.facts),
        files=len(files & record.read),
        files_named=len(files),
        kinds=len(kinds & record.used),
        kinds_needed=len(kinds),
        has_check=expect.check is not None,
        cause=None,
    )
    cause = _cause_of_end(record) or _cause_of_content(score)
    return replace(score, cause=cause)


def _cause_of_end(record: TrialRecord) -> str | None:
    match record.status:
        case "completed":
            return "unfulfilled" if record.unfulfilled else None
        case "running":
            return "unfinished"
        case "waiting":
            return "waits"
        case _:
            return record.error_code or record.outcome or record.status


def _cause_of_content(score: Score) -> str | None:
    record = score.record
    if score.files < score.files_named:
        return "unread"
    if score.kinds < score.kinds_needed:
        return "unused"
    if score.facts < score.facts_asked:
        return "echo" if record.is_echo else "wrong"
    if not score.has_check:
        return None
    if record.check is None:
        return "unchecked"
    return None if score.passes_check else "check"
