"""Rewrite JSON Schemas for decoders that can write nothing else.

They take what OpenAI's strict mode and the grammars of llama.cpp, vLLM and llguidance have in common: closed objects
with every key required, optional ones nullable, `anyOf`, constants, enums, patterns, bounds of numbers. Titles,
defaults, lengths, `oneOf` and discriminators are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pydantic import JsonValue

Schema: TypeAlias = dict[str, JsonValue]

NULL: Mapping[str, JsonValue] = {"type": "null"}
# No quote and no backslash either: llama.cpp puts a pattern between the quotes as it is.
LINE = r'^[^"\\\x00-\x1f\x7f-\x9f]+$'
_SEGMENT = r'\.?[^./"*?:<>|\\\x00-\x1f\x7f-\x9f][^/"*?:<>|\\\x00-\x1f\x7f-\x9f]*'
CONFINED_PATH = rf"^({_SEGMENT}/)*{_SEGMENT}$"
"""A relative path that leaves no directory: no `..`, nothing absolute, no drive, and no pattern."""


def strict(schema: Mapping[str, JsonValue]) -> Schema:
    """The nearest schema that such decoders take; it allows nothing that `schema` forbids, but for lengths.

    A text that may not be empty becomes a line without quotes. An optional object of any keys is left out: closed
    objects cannot say it; a required one stays open, which some decoders refuse.
    """
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return any_of([strict(branch) for branch in _schemas(schema[key])], schema.get("description"))
    if "allOf" in schema:
        merged: Schema = {}
        for part in _schemas(schema["allOf"]):
            merged |= part
        return strict(merged | {key: value for key, value in schema.items() if key != "allOf"})
    if "properties" in schema:
        return _strict_object(schema)
    return _strict_value(schema)


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
    """One of `branches`; a single one stands for itself."""
    if len(branches) == 1:
        return dict(branches[0])
    whole: Schema = {"anyOf": [dict(branch) for branch in branches]}
    return whole if description is None else {"description": description, **whole}


def nullable(schema: Mapping[str, JsonValue]) -> Schema:
    """`schema`, or null, which reads as absent."""
    branches = _schemas(schema["anyOf"]) if "anyOf" in schema else [dict(schema)]
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
    """`schema` with at most `most` entries in each list: who repeats himself does not find the end alone."""
    if isinstance(schema, list):
        return [with_ends(part, most) for part in schema]
    if not isinstance(schema, dict):
        return schema
    ended = {key: with_ends(part, most) for key, part in schema.items()}
    return (
        {**ended, "maxItems": most} if schema.get("type") == "array" and "maxItems" not in schema else ended
    )


_KEPT = ("description", "type", "const", "enum", "pattern", "minimum", "maximum")


def _schemas(value: JsonValue) -> list[Schema]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


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
    branches = _schemas(schema["anyOf"]) if "anyOf" in schema else [dict(schema)]
    return any(
        branch.get("type") == "object" and branch.get("additionalProperties") is not False
        for branch in branches
    )


def _strict_value(schema: Mapping[str, JsonValue]) -> Schema:
    kept: Schema = {key: schema[key] for key in _KEPT if key in schema}
    match schema.get("type"):
        case "array":
            items = schema.get("items")
            return {**kept, "items": strict(items if isinstance(items, dict) else {})}
        case "object":
            more = schema.get("additionalProperties", True)
            return {
                **kept,
                "additionalProperties": strict(more) if isinstance(more, dict) and more else more or False,
            }
        case "string" if schema.get("minLength") and not kept.keys() & {"pattern", "const", "enum"}:
            return {**kept, "pattern": LINE}
        case "integer":
            return kept | _whole_bounds(schema)
        case None if not kept.keys() & {"const", "enum"}:
            # Any JSON value: a text is one, and the only one that each decoder can be told to write.
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
