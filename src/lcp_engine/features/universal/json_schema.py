"""Write JSON Schemas in two vocabularies: draft 2020-12 as published, and the strict subset of constrained decoders.

The strict subset is what OpenAI's strict mode and the grammars of llama.cpp, vLLM and llguidance have in common: closed
objects with every key required, optional ones nullable, `anyOf`, constants, enums, patterns, bounds of numbers. Titles,
defaults, lengths, `oneOf` and discriminators are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from pydantic import BaseModel, JsonValue
from pydantic.errors import PydanticInvalidForJsonSchema
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

Schema: TypeAlias = dict[str, JsonValue]
Params: TypeAlias = Mapping[str, Schema]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NULL: Mapping[str, JsonValue] = {"type": "null"}
# No quote and no backslash either: llama.cpp puts a pattern between the quotes unchanged.
LINE = r'^[^"\\\x00-\x1f\x7f-\x9f]+$'
_SEGMENT = r'\.?[^./"*?:<>|\\\x00-\x1f\x7f-\x9f][^/"*?:<>|\\\x00-\x1f\x7f-\x9f]*'
CONFINED_PATH = rf"^({_SEGMENT}/)*{_SEGMENT}$"
"""A relative path that leaves no directory: no `..`, nothing absolute, no drive, and no pattern."""


def action_schema(kinds: Mapping[str, type[BaseModel]]) -> Schema:
    """The published schema of one of the five actions, told apart by `action`.

    A job has a kind of `kinds` with its params, or a custom kind. Stricter than `read_reply`, which ignores unknown
    keys: this is for planners that are held to a schema.
    """
    models: dict[type[BaseModel], None] = dict.fromkeys((*_ACTIONS, JobSpec, *kinds.values()))
    refs, whole = models_json_schema([(model, "validation") for model in models], schema_generator=_Untitled)
    definitions: dict[str, Schema] = whole["$defs"]
    job = definitions.pop("JobSpec")
    for action in _ACTIONS:
        definitions[action.__name__] = _begin_with_action(definitions[action.__name__])
    definitions["Job"] = {
        "anyOf": [
            *(_describe_job(job, kind, refs[model, "validation"]) for kind, model in kinds.items()),
            _describe_custom_job(job, [*kinds, *sorted(NOT_KINDS)]),
        ]
    }
    jobs = definitions["CreateFollowupJobs"]
    new_jobs: Schema = {"type": "array", "items": _ref("Job")}
    jobs["properties"] = {**properties_of(jobs), "new_jobs": new_jobs}
    return {
        "$schema": DIALECT,
        "title": "LCP action",
        "anyOf": [_ref(action.__name__) for action in _ACTIONS],
        "$defs": {**definitions},
    }


def properties_of(schema: Mapping[str, JsonValue]) -> dict[str, Schema]:
    """The keys of an object's schema."""
    given = schema.get("properties")
    if not isinstance(given, dict):
        return {}
    return {key: part for key, part in given.items() if isinstance(part, dict)}


def strict(schema: Mapping[str, JsonValue]) -> Schema:
    """The nearest strict schema; except for lengths, it allows nothing that `schema` forbids.

    A text that may not be empty becomes a line without quotes. An optional object of any keys is left out, since closed
    objects cannot describe it; a required one stays open, which some decoders refuse.
    """
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return any_of([strict(branch) for branch in _objects(schema[key])], schema.get("description"))
    if "allOf" in schema:
        merged: Schema = {}
        for part in _objects(schema["allOf"]):
            merged |= part
        return strict(merged | {key: value for key, value in schema.items() if key != "allOf"})
    if "properties" in schema:
        return _strict_object(schema)
    return _strict_value(schema)


def strict_params(kinds: Mapping[str, type[BaseModel]]) -> tuple[Params, Params]:
    """The strict schema of the params of each kind, and the definitions that these refer to.

    A kind whose params no schema can describe is left out.
    """
    described = {kind: model for kind, model in kinds.items() if _is_describable(model)}
    schemas, definitions = _strict_models(tuple(described.values()))
    return dict(zip(described, schemas, strict=True)), definitions


def closed(properties: Mapping[str, Mapping[str, JsonValue]], description: JsonValue = None) -> Schema:
    """An object of exactly these keys, in their order."""
    whole: Schema = {"type": "object"}
    if description is not None:
        whole["description"] = description
    whole["properties"] = {key: dict(value) for key, value in properties.items()}
    whole["required"] = [*properties]
    whole["additionalProperties"] = False
    return whole


def any_of(branches: Sequence[Mapping[str, JsonValue]], description: JsonValue = None) -> Schema:
    """One of `branches`; a single one is returned unwrapped."""
    if len(branches) == 1:
        return dict(branches[0])
    whole: Schema = {"anyOf": [dict(branch) for branch in branches]}
    return whole if description is None else {"description": description, **whole}


def nullable(schema: Mapping[str, JsonValue]) -> Schema:
    """`schema`, or null, which reads as absent."""
    branches = _branches(schema)
    if any(branch.get("type") == "null" for branch in branches):
        return dict(schema)
    return any_of([*branches, NULL], schema.get("description") if "anyOf" in schema else None)


def constant(value: str | bool) -> Schema:
    return {"type": "boolean" if isinstance(value, bool) else "string", "const": value}


def one_of_texts(values: Sequence[str]) -> Schema:
    """One of these texts; a single one is a constant."""
    return constant(values[0]) if len(values) == 1 else {"type": "string", "enum": [*values]}


def at_least(bound: int) -> Schema:
    return {"type": "integer", "minimum": bound}


def list_of(items: Mapping[str, JsonValue]) -> Schema:
    return {"type": "array", "items": dict(items)}


def with_ends(schema: JsonValue, most: int) -> JsonValue:
    """`schema` with at most `most` entries in each list: a model that repeats itself does not stop on its own."""
    if isinstance(schema, list):
        return [with_ends(part, most) for part in schema]
    if not isinstance(schema, dict):
        return schema
    ended = {key: with_ends(part, most) for key, part in schema.items()}
    is_endless = schema.get("type") == "array" and "maxItems" not in schema
    return {**ended, "maxItems": most} if is_endless else ended


_ACTIONS = (CreateFollowupJobs, WriteFile, AnalysisResult, MissionComplete, ErrorAction)
# R3: two names for one param. A strict schema has one of them.
_SAME = {"path": "rel_path", "new_content": "content"}
_KEPT = ("description", "type", "const", "enum", "pattern", "minimum", "maximum")


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: object) -> bool:
        """Never: a title would only repeat the key."""
        return False


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _begin_with_action(schema: Schema) -> Schema:
    # A model that writes in the order of the schema has then chosen the action before filling it.
    properties = properties_of(schema)
    constants = {key: _without_default(properties[key]) for key in ("action", "ok")}
    required = schema.get("required", [])
    assert isinstance(required, list)
    return {
        **schema,
        "properties": {**constants, **{k: v for k, v in properties.items() if k not in constants}},
        "required": ["action", "ok", *required],
    }


def _without_default(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "default"}


def _describe_job(job: Schema, kind: str, params: Schema) -> Schema:
    return {
        **job,
        "description": f"A job of kind {kind}.",
        "properties": {**properties_of(job), "kind": {"const": kind}, "params": params},
        "required": ["kind", "params"],
    }


def _describe_custom_job(job: Schema, taken: list[str]) -> Schema:
    properties = properties_of(job)
    return {
        **job,
        "description": "A job of a custom kind; its params are any object.",
        "properties": {**properties, "kind": {**properties["kind"], "not": {"enum": [*taken]}}},
    }


def _objects(value: JsonValue) -> list[Schema]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _branches(schema: Mapping[str, JsonValue]) -> list[Schema]:
    return _objects(schema["anyOf"]) if "anyOf" in schema else [dict(schema)]


def _strict_object(schema: Mapping[str, JsonValue]) -> Schema:
    given, required = schema["properties"], schema.get("required")
    named = required if isinstance(required, list) else []
    properties: dict[str, Schema] = {}
    for key, value in (given if isinstance(given, dict) else {}).items():
        part = strict(value) if isinstance(value, dict) else strict({})
        if key in named:
            properties[key] = part
        elif not _is_open(part):
            properties[key] = nullable(part)
    return closed(properties, schema.get("description"))


def _is_open(schema: Mapping[str, JsonValue]) -> bool:
    return any(
        branch.get("type") == "object" and branch.get("additionalProperties") is not False
        for branch in _branches(schema)
    )


def _strict_value(schema: Mapping[str, JsonValue]) -> Schema:
    kept: Schema = {key: schema[key] for key in _KEPT if key in schema}
    match schema.get("type"):
        case "array":
            items = schema.get("items")
            return {**kept, "items": strict(items if isinstance(items, dict) else {})}
        case "object":
            more = schema.get("additionalProperties", True)
            values = strict(more) if isinstance(more, dict) and more else more or False
            return {**kept, "additionalProperties": values}
        case "string" if schema.get("minLength") and not kept.keys() & {"pattern", "const", "enum"}:
            return {**kept, "pattern": LINE}
        case "integer":
            return kept | _whole_bounds(schema)
        case None if not kept.keys() & {"const", "enum"}:
            # Any JSON value: text is the one kind of value that every decoder can be made to write.
            return {**kept, "type": "string"}
        case _:
            return kept


def _whole_bounds(schema: Mapping[str, JsonValue]) -> Schema:
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    bounds: Schema = {}
    if isinstance(above, int):
        bounds["minimum"] = above + 1
    if isinstance(below, int):
        bounds["maximum"] = below - 1
    return bounds


@lru_cache(maxsize=256)
def _is_describable(model: type[BaseModel]) -> bool:
    try:
        model.model_json_schema()
    except PydanticInvalidForJsonSchema:
        return False
    return True


@lru_cache(maxsize=64)
def _strict_models(models: tuple[type[BaseModel], ...]) -> tuple[tuple[Schema, ...], Params]:
    refs, whole = models_json_schema([(model, "validation") for model in models])
    given = whole.get("$defs", {})
    own = [refs[model, "validation"]["$ref"].rsplit("/", 1)[-1] for model in models]
    definitions = {name: strict(part) for name, part in given.items()}
    return tuple(_named_once(given[name]) for name in own), definitions


def _named_once(schema: Schema) -> Schema:
    """The strict schema with the second of two names for one param, required."""
    properties = properties_of(schema)
    needed = {name for key, name in _SAME.items() if key in properties and name in properties}
    kept = {key: part for key, part in properties.items() if _SAME.get(key) not in properties}
    whole = properties_of(strict({**schema, "properties": {**kept}}))
    return closed({key: _not_null(part) if key in needed else part for key, part in whole.items()})


def _not_null(schema: Schema) -> Schema:
    if "anyOf" not in schema:
        return schema
    return any_of([part for part in _branches(schema) if part != NULL], schema.get("description"))
