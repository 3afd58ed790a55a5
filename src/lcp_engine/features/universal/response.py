"""One reply in the universal schema, as typed values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SkipValidation


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Step(_Part):
    step_number: int
    action: str
    details: str | None = None
    estimated_minutes: int | None = None


class PlanningData(_Part):
    summary: str | None = None
    steps: list[Step] | None = None
    dependencies: list[str] | None = None


class Check(_Part):
    criterion: str
    passed: bool
    note: str | None = None


class VerificationData(_Part):
    checks: list[Check] | None = None
    suggestions: list[str] | None = None


Score: TypeAlias = Annotated[int, Field(ge=0, le=100)]
Degree: TypeAlias = Literal["high", "medium", "low"]


class ClarityData(_Part):
    completeness_score: Score | None = None
    clarity_score: Score | None = None
    accuracy_score: Score | None = None
    total_score: Score | None = None
    follow_up_questions: list[str] | None = None


class Finding(_Part):
    topic: str
    description: str
    source_file: str | None = None
    relevance: Degree | None = None


class ResearchData(_Part):
    findings: list[Finding] | None = None
    sources: list[str] | None = None


class AnswerData(_Part):
    confidence: Degree | None = None
    sources: list[str] | None = None
    follow_up_needed: bool | None = None


class ErrorDetails(_Part):
    error_code: str | None = None
    error_message: str | None = None
    suggested_action: str | None = None


class Response(BaseModel):
    """One reply in the universal schema; a null in an optional place reads as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    response_type: Literal["planning", "answer", "verification", "clarity", "research", "custom", "error"]
    status: Literal["success", "needs_clarification", "error", "PASS", "FAIL", "PARTIAL"]
    message: str
    planning_data: PlanningData | None = None
    verification_data: VerificationData | None = None
    clarity_data: ClarityData | None = None
    research_data: ResearchData | None = None
    answer_data: AnswerData | None = None
    custom_fields: dict[str, Annotated[JsonValue, SkipValidation]] | None = None
    error_details: ErrorDetails | None = None


VERDICTS = ("PASS", "FAIL", "PARTIAL")
_USUAL = ("success", "needs_clarification", "error")
PAIRS: Mapping[str, tuple[str, ...]] = {
    "planning": _USUAL,
    "answer": _USUAL,
    "verification": (*VERDICTS, "error"),
    "clarity": _USUAL,
    "research": _USUAL,
    "custom": _USUAL,
    "error": ("error",),
}
"""The statuses that each response may have."""
