"""The schemas of the dialect `universal`: the published one, and the strict one for constrained decoders. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from pydantic import BaseModel, JsonValue

from lcp_engine.core.protocol.result_schema import RESULT
from lcp_engine.features.universal.json_schema import (
    DIALECT,
    Schema,
    any_of,
    closed,
    constant,
    list_of,
    nullable,
    one_of_texts,
    properties_of,
    strict,
)
from lcp_engine.features.universal.response import (
    VERDICTS,
    AnswerData,
    ClarityData,
    ErrorDetails,
    ResearchData,
    Response,
    VerificationData,
)

_Definitions: TypeAlias = Mapping[str, Schema]
_ACTION = r'^[^ "\\\x00-\x1f\x7f-\x9f][^"\\\x00-\x1f\x7f-\x9f]*$'
_ASKS = ("needs_clarification",)


def universal_schema() -> Schema:
    """The published schema: one object, of which each agent fills its own part."""
    whole = Response.model_json_schema()
    plain = _plain(whole, whole["$defs"])
    return {"$schema": DIALECT, "title": "Universal agent response", **plain}


def strict_universal_schema(
    lcp: Mapping[str, JsonValue],
    *,
    responses: Collection[str] | None = None,
    files: Sequence[str] = (),
    lengths: bool = False,
    has_result: bool = False,
    may_ask: bool = True,
) -> Schema:
    """The same in the strict vocabulary: one closed object for each response type, its constant first.

    Pairs of response and status that are never read cannot be written; what is unclear or impossible has a response of
    its own (clarity, error). A custom response holds an action of the schema `lcp`. `responses` are the allowed ones
    (default all), `files` what a response may name as its sources (default anything). `lengths`: a plan has at least
    one step, and no more sources are named than there are files. `has_result`: responses that complete the mission
    carry what `$defs` has as `result`. Without `may_ask` no answer asks a person whether it is enough.
    """
    asks = {} if may_ask else {"follow_up_needed": constant(False)}
    answer = closed({**properties_of(_strict_part(AnswerData)), **asks})
    custom = {"custom_fields": closed({RESULT: {"$ref": f"#/$defs/{RESULT}"}})} if has_result else {}
    parts = {
        "planning": (("success",), "planning_data", _planning(lengths=lengths)),
        "answer": (("success",), "answer_data", _from(files, answer, lengths=lengths)),
        "verification": (VERDICTS, "verification_data", _strict_part(VerificationData)),
        "clarity": (_ASKS if has_result else (*_ASKS, "success"), "clarity_data", _strict_part(ClarityData)),
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
                **(custom if name in ("answer", "research") else {}),
            }
        )
        for name, (statuses, key, part) in parts.items()
        if responses is None or name in responses
    ]
    return any_of(branches) | ({"$defs": lcp["$defs"]} if "$defs" in lcp else {})


def _plain(schema: Schema, definitions: _Definitions) -> Schema:
    """The schema without references, titles, defaults, and the null of optional keys."""
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
    """`schema` with sources limited to `files`."""
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
    """The planning section with required steps, each with an action that is not blank."""
    text: Schema = {"type": "string"}
    action: Schema = {"type": "string", "pattern": _ACTION}
    minutes = nullable({"type": "integer"})
    number: Schema = {"type": "integer"}
    more = {"details": nullable(text), "estimated_minutes": minutes}
    steps = list_of(closed({"step_number": number, "action": action, **more})) | (
        {"minItems": 1} if lengths else {}
    )
    return closed({"summary": nullable(text), "steps": steps, "dependencies": nullable(list_of(text))})
