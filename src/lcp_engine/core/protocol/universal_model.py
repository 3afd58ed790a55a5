"""Define the universal agent response (seed 000), the schema of it, and what of it a decoder may write."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SkipValidation

from lcp_engine.core.protocol.json_schema import DIALECT
from lcp_engine.core.protocol.strict_schema import (
    Schema,
    any_of,
    closed,
    constant,
    list_of,
    nullable,
    one_of_texts,
    strict,
)


def universal_schema() -> Schema:
    """The JSON Schema of seed 000: one object, of which each agent fills its own part."""
    whole = Response.model_json_schema()
    plain = _plain(whole, whole["$defs"])
    return {"$schema": DIALECT, "title": "Universal agent response", **plain}


def strict_universal_schema(
    lcp: Mapping[str, JsonValue],
    *,
    responses: Collection[str] | None = None,
    files: Sequence[str] = (),
    lengths: bool = False,
) -> Schema:
    """The same for constrained decoders: one closed object for each response type, its constant first.

    Pairs that are never read cannot be written; what is unclear or impossible has a response of its own (clarity,
    error). A custom response holds `lcp`, of the schema given. `responses` are those that are allowed (all), `files`
    what a response may name as its sources (anything).
    `lengths`: a plan has a step at least, and no more sources are named than there are files.
    """
    parts = {
        "planning": (("success",), "planning_data", _planning(lengths=lengths)),
        "answer": (("success",), "answer_data", _from(files, _strict_part(AnswerData), lengths=lengths)),
        "verification": (VERDICTS, "verification_data", _strict_part(VerificationData)),
        "clarity": (("needs_clarification", "success"), "clarity_data", _strict_part(ClarityData)),
        "research": (
            ("success",),
            "research_data",
            _from(files, _strict_part(ResearchData), lengths=lengths),
        ),
        "custom": (
            ("success",),
            "custom_fields",
            closed({"lcp": {k: v for k, v in lcp.items() if k != "$defs"}}),
        ),
        "error": (("error",), "error_details", _strict_part(ErrorDetails)),
    }
    branches = [
        closed(
            {
                "response_type": constant(name),
                "status": one_of_texts(statuses),
                "message": {"type": "string"},
                key: part,
            }
        )
        for name, (statuses, key, part) in parts.items()
        if responses is None or name in responses
    ]
    return any_of(branches) | ({"$defs": lcp["$defs"]} if "$defs" in lcp else {})


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
"""Which statuses go with which response."""

_Definitions: TypeAlias = Mapping[str, Schema]
_ACTION = r'^[^ "\\\x00-\x1f\x7f-\x9f][^"\\\x00-\x1f\x7f-\x9f]*$'


def _plain(schema: Schema, definitions: _Definitions) -> Schema:
    """Without references, titles, defaults, and the null that every optional key of a model may be."""
    if isinstance(reference := schema.get("$ref"), str):
        return _plain(definitions[reference.rsplit("/", 1)[-1]], definitions)
    if isinstance(branches := schema.get("anyOf"), list):
        return next(
            _plain(branch, definitions)
            for branch in branches
            if isinstance(branch, dict) and branch.get("type") != "null"
        )
    plain: Schema = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            plain[key] = {
                name: _plain(part, definitions) for name, part in value.items() if isinstance(part, dict)
            }
        elif key == "items" and isinstance(value, dict):
            plain[key] = _plain(value, definitions)
        elif key == "additionalProperties" and isinstance(value, dict):
            plain[key] = True
        elif key not in ("title", "default", "description", "$defs"):
            plain[key] = value
    return plain


@cache
def _strict_part(model: type[BaseModel]) -> Schema:
    whole = model.model_json_schema()
    return strict(_plain(whole, whole.get("$defs", {})))


def _from(files: Sequence[str], schema: Schema, *, lengths: bool) -> Schema:
    """`schema` where sources are some of `files`."""
    if not files:
        return schema
    named: Mapping[str, Schema] = {
        "sources": nullable(list_of(one_of_texts(files)) | ({"maxItems": len(files)} if lengths else {})),
        "source_file": nullable(one_of_texts(files)),
    }

    def replaced(part: JsonValue) -> JsonValue:
        if isinstance(part, list):
            return [replaced(each) for each in part]
        if not isinstance(part, dict):
            return part
        return {key: named.get(key) or replaced(value) for key, value in part.items()}

    return {key: replaced(part) for key, part in schema.items()}


def _planning(*, lengths: bool) -> Schema:
    """Steps are needed, and each says what is to be done."""
    text: Schema = {"type": "string"}
    action: Schema = {"type": "string", "pattern": _ACTION}
    minutes = nullable({"type": "integer"})
    number: Schema = {"type": "integer"}
    more = {"details": nullable(text), "estimated_minutes": minutes}
    steps = list_of(closed({"step_number": number, "action": action, **more})) | (
        {"minItems": 1} if lengths else {}
    )
    return closed({"summary": nullable(text), "steps": steps, "dependencies": nullable(list_of(text))})
