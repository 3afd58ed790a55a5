"""Describe what a planner may answer as JSON Schema (draft 2020-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from lcp_engine.core.protocol.actions import (
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    JobSpec,
    MissionComplete,
    WriteFile,
)
from lcp_engine.core.protocol.read_reply import NOT_KINDS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def action_schema(kinds: Mapping[str, type[BaseModel]]) -> dict[str, JsonValue]:
    """One of the five actions, told apart by `action`; a job has a kind of `kinds` with its params, or a custom kind.

    Stricter than `read_reply`, which ignores unknown keys: this is for planners that are held to a schema.
    """
    models: dict[type[BaseModel], None] = dict.fromkeys((*_ACTIONS, JobSpec, *kinds.values()))
    refs, whole = models_json_schema([(model, "validation") for model in models], schema_generator=_Plain)
    definitions: dict[str, _Schema] = whole["$defs"]
    job = definitions.pop("JobSpec")
    for action in _ACTIONS:
        definitions[action.__name__] = _begin_with_action(definitions[action.__name__])
    definitions["Job"] = {
        "anyOf": [
            *(_describe_job(job, kind, refs[model, "validation"]) for kind, model in kinds.items()),
            _describe_custom_job(job, [*kinds, *sorted(NOT_KINDS)]),
        ]
    }
    _properties(definitions["CreateFollowupJobs"])["new_jobs"] = {"type": "array", "items": _ref("Job")}
    return {
        "$schema": DIALECT,
        "title": "LCP action",
        "anyOf": [_ref(action.__name__) for action in _ACTIONS],
        "$defs": {**definitions},
    }


_Schema: TypeAlias = dict[str, JsonValue]
_ACTIONS = (CreateFollowupJobs, WriteFile, AnalysisResult, MissionComplete, ErrorAction)


class _Plain(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: object) -> bool:
        """Never: a title that repeats the key says nothing."""
        return False


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/$defs/{name}"}


def _properties(schema: _Schema) -> _Schema:
    properties = schema["properties"]
    assert isinstance(properties, dict)
    return properties


def _required(schema: _Schema) -> list[JsonValue]:
    required = schema.get("required", [])
    assert isinstance(required, list)
    return required


def _begin_with_action(schema: _Schema) -> _Schema:
    # Who writes in the order of the schema has then chosen the action before filling it.
    constants: _Schema = {key: _without_default(_properties(schema)[key]) for key in ("action", "ok")}
    return {
        **schema,
        "properties": constants | {k: v for k, v in _properties(schema).items() if k not in constants},
        "required": ["action", "ok", *_required(schema)],
    }


def _without_default(schema: JsonValue) -> JsonValue:
    assert isinstance(schema, dict)
    return {key: value for key, value in schema.items() if key != "default"}


def _describe_job(job: _Schema, kind: str, params: _Schema) -> _Schema:
    properties: _Schema = {**_properties(job), "kind": {"const": kind}, "params": params}
    return {
        **job,
        "description": f"A job of kind {kind}.",
        "properties": properties,
        "required": ["kind", "params"],
    }


def _describe_custom_job(job: _Schema, taken: list[str]) -> _Schema:
    kind = _properties(job)["kind"]
    assert isinstance(kind, dict)
    properties: _Schema = {**_properties(job), "kind": {**kind, "not": {"enum": [*taken]}}}
    return {
        **job,
        "description": "A job of a custom kind; its params are any object.",
        "properties": properties,
    }
