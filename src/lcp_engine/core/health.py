"""The result of a health check: ok, a warning or a failure, with advice. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lcp_engine.core.json_values import JsonValue
from lcp_engine.errors import Failed


class Grade(StrEnum):
    """`warn`: it works and could be better; `fail`: it does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """A check of one thing, named in `about`: the fact in one sentence, and advice unless it is ok."""

    about: str
    grade: Grade
    fact: str
    advice: str | None = None

    @property
    def json(self) -> dict[str, JsonValue]:
        return {"about": self.about, "grade": self.grade.value, "fact": self.fact, "advice": self.advice}


def well(about: str, fact: str) -> Finding:
    return Finding(about, Grade.OK, fact)


def doubtful(about: str, fact: str, advice: str) -> Finding:
    return Finding(about, Grade.WARN, fact, advice)


def broken(about: str, failed: Failed) -> Finding:
    """A failure, with its advice."""
    advice = failed.advice or _WITHOUT_A_CHECK.get(failed.code) or failed.recommendation
    return Finding(about, Grade.FAIL, failed.message, advice)


_WITHOUT_A_CHECK = {
    "PLANNER_FAILED": "Correct what the line names.",
    "PLANNER_REFUSED": "Correct what the line names.",
}
"""For codes that elsewhere advise to run a check."""


def is_sound(findings: Sequence[Finding]) -> bool:
    """True if nothing failed."""
    return all(finding.grade is not Grade.FAIL for finding in findings)
