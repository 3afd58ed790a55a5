"""The OpenAPI 3.1 document of the API, made from its operations and their models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from lcp_engine.core.json_values import JsonObject, object_in
from lcp_engine.features.http_api import act, look
from lcp_engine.features.http_api.operations import KEY, MOST_KEY, NUMBERS, Operation
from lcp_engine.features.http_api.values import Problem

Places: TypeAlias = Mapping[tuple[str, JsonSchemaMode], JsonObject]
"""The reference to each model, by its name and what it is for."""
OPERATIONS = (*look.OPERATIONS, *act.OPERATIONS)
_REFERENCE = "#/components/schemas/{model}"
_DESCRIPTION = (
    "Missions, jobs and decisions of one lcp-engine. Programs send a token of `lcp tokens add` as "
    "`Authorization: Bearer TOKEN`; docs/api.md explains the rest."
)


@cache
def document() -> JsonObject:
    """The whole document, which nobody changes."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(Problem, "serialization")]
    for one in OPERATIONS:
        if isinstance(one.answer, type) and issubclass(one.answer, BaseModel):
            models.append((one.answer, "serialization"))
        if one.body is not None:
            models.append((one.body, "validation"))
    made, stated = models_json_schema(models, ref_template=_REFERENCE)
    places: Places = {(kind.__name__, mode): schema for (kind, mode), schema in made.items()}
    paths: dict[str, JsonValue] = {}
    for one in OPERATIONS:
        at = paths.setdefault(one.path, {})
        assert isinstance(at, dict)
        at[one.method.lower()] = _operation(one, places)
    return {
        "openapi": "3.1.0",
        "info": {"title": "lcp-engine", "version": "1", "description": _DESCRIPTION},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(sorted(object_in(stated.get("$defs")).items())),
        },
    }


def _operation(one: Operation, places: Places) -> JsonObject:
    said = " ".join((one.do.__doc__ or "").split())
    made: JsonObject = {
        "operationId": f"{one.method.lower()}_{re.sub(r'[^a-z]+', '_', one.path.removeprefix('/v1/')).strip('_')}",
        "summary": said.partition(". ")[0].rstrip("."),
        "description": f"{said} Scope: `{one.scope}`.",
        "parameters": [*_parameters(one)],
        "responses": {
            str(one.status): {"description": "Done.", "content": _content(one, places)},
            "default": {
                "description": "What was refused.",
                "content": {
                    "application/problem+json": {"schema": places[Problem.__name__, "serialization"]}
                },
            },
        },
    }
    if one.body is not None:
        content: JsonObject = {"application/json": {"schema": places[one.body.__name__, "validation"]}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _content(one: Operation, places: Places) -> JsonObject:
    made: JsonObject = {"text/event-stream": {"schema": {"type": "string"}}} if one.streams else {}
    if isinstance(one.answer, type) and issubclass(one.answer, BaseModel):
        made["application/json"] = {"schema": places[one.answer.__name__, "serialization"]}
    return made


def _parameters(one: Operation) -> list[JsonValue]:
    found: list[JsonValue] = []
    for name in re.findall(r"{(\w+)}", one.path):
        schema: JsonObject = (
            {"type": "integer", "minimum": 1} if name in NUMBERS else {"type": "string", "minLength": 1}
        )
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    if one.query is not None:
        schema = TypeAdapter(one.query).json_schema(ref_template=_REFERENCE)
        known = object_in(schema.get("$defs"))
        for name, stated in object_in(schema["properties"]).items():
            found.append({"name": name, "in": "query", "schema": _inlined(stated, known)})
    if one.streams:
        found.append(
            {
                "name": "Last-Event-ID",
                "in": "header",
                "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
            }
        )
    if one.tell is not None:
        key: JsonObject = {"type": "string", "minLength": 1, "maxLength": MOST_KEY, "pattern": "^[!-~]+$"}
        found.append({"name": KEY, "in": "header", "required": True, "schema": key})
    return found


def _inlined(schema: JsonValue, known: JsonObject) -> JsonValue:
    """The schema with what it refers to in its place."""
    match schema:
        case {"$ref": str(place)}:
            return _inlined(known[place.rpartition("/")[2]], known)
        case dict():
            return {key: _inlined(value, known) for key, value in schema.items()}
        case list():
            return [_inlined(value, known) for value in schema]
    return schema
