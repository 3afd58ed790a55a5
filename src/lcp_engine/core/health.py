"""Say how something is: well, not quite, or broken, with what to do about it (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue

from lcp_engine.errors import Failed


class Grade(StrEnum):
    """`warn` works, and could be better; `fail` does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """What was found `about` one thing: the fact in one sentence, and what to do unless all is well."""

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
    """A failure, with the advice of its code."""
    return Finding(about, Grade.FAIL, failed.message, failed.meaning.advice)


def is_sound(findings: Sequence[Finding]) -> bool:
    """Whether nothing is broken."""
    return all(finding.grade is not Grade.FAIL for finding in findings)
