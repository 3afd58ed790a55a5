"""Describe the params of kinds as strict schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import models_json_schema

from lcp_engine.core.protocol.strict_schema import NULL, Schema, any_of, closed, strict
from lcp_engine.planners.base import Kind

Params: TypeAlias = Mapping[str, Schema]


def params_of(kinds: Sequence[Kind]) -> tuple[Params, Params]:
    """The schema of each kind's params by the kind's name, and what these refer to.

    A kind whose params no schema can describe is left out.
    """
    told = [kind for kind in kinds if _is_describable(kind.params)]
    schemas, definitions = _schemas(tuple(kind.params for kind in told))
    return {kind.name: schema for kind, schema in zip(told, schemas, strict=True)}, definitions


def properties_of(schema: Schema) -> dict[str, Schema]:
    """The keys of an object's schema."""
    given = schema.get("properties")
    return (
        {key: part for key, part in given.items() if isinstance(part, dict)}
        if isinstance(given, dict)
        else {}
    )


# R3: two names for one param. The schema says it with one.
_SAME = {"path": "rel_path", "new_content": "content"}


@lru_cache(maxsize=256)
def _is_describable(model: type[BaseModel]) -> bool:
    try:
        model.model_json_schema()
    except PydanticInvalidForJsonSchema:
        return False
    return True


@lru_cache(maxsize=64)
def _schemas(models: tuple[type[BaseModel], ...]) -> tuple[tuple[Schema, ...], Params]:
    refs, whole = models_json_schema([(model, "validation") for model in models])
    given = whole.get("$defs", {})
    own = [refs[model, "validation"]["$ref"].rsplit("/", 1)[-1] for model in models]
    return tuple(_named_once(given[name]) for name in own), {
        name: strict(part) for name, part in given.items()
    }


def _named_once(schema: Schema) -> Schema:
    """The strict schema, where of two names for one param the first is left, and needed."""
    properties = properties_of(schema)
    needed = {name for key, name in _SAME.items() if key in properties and name in properties}
    kept = {key: part for key, part in properties.items() if _SAME.get(key) not in properties}
    whole = properties_of(strict({**schema, "properties": {**kept}}))
    return closed({key: _not_null(part) if key in needed else part for key, part in whole.items()})


def _not_null(schema: Schema) -> Schema:
    branches = schema.get("anyOf")
    if not isinstance(branches, list):
        return schema
    return any_of(
        [part for part in branches if isinstance(part, dict) and part != NULL], schema.get("description")
    )
