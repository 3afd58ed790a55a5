"""Models of params and results that a JSON Schema describes, for kinds that are not written in Python. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import PydanticCustomError

from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MOST_SCHEMA = 64 * 1024
"""Characters of a schema, with what its references stand for."""
_LONGEST = 300
_OF_DOCUMENT = ("$schema", "$id", "$defs", "definitions")


class SchemaModel(BaseModel):
    """An object that fits a JSON Schema. `schema_model` makes such models."""

    model_config = ConfigDict(frozen=True, extra="allow")

    described: ClassVar[dict[str, JsonValue]]
    """The schema, without references."""
    checks: ClassVar[Validator]
    names: ClassVar[tuple[str, ...]] = ()
    """The keys that the schema names."""
    nullable: ClassVar[frozenset[str]] = frozenset()
    """Those of them that are required, and may be null."""
    defaults: ClassVar[Mapping[str, JsonValue]] = {}
    """The values of keys that are not given."""

    @model_validator(mode="before")
    @classmethod
    def _check(cls, value: object) -> object:
        """Raises the first fault; a key that may be null, and is missing, is null: planners leave it out."""
        if isinstance(value, Mapping):
            value = {**cls.defaults, **value}
            if missing := cls.nullable.difference(value):
                value = {**value, **dict.fromkeys(missing)}
        if (fault := next(cls.checks.iter_errors(value), None)) is not None:
            raise PydanticCustomError("schema", "{fault}", {"fault": _told(fault)})
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: object, handler: GetJsonSchemaHandler
    ) -> dict[str, JsonValue]:
        return json.loads(json.dumps(cls.described))  # type: ignore[no-any-return]  # what was JSON


def schema_model(
    name: str, schema: Mapping[str, JsonValue], *, fills_defaults: bool = False
) -> type[SchemaModel]:
    """A model of the objects that `schema` describes, in draft 2020-12 unless its `$schema` says otherwise.

    With `fills_defaults` a key that is not given has its `default`. Raises `INVALID_ARGUMENT` for a schema that is not
    valid, is not one of an object, or refers to other documents.
    """
    import jsonschema_rs

    try:
        validator = validator_of(schema)
        plain = _without_references(schema)
        properties, required = plain.get("properties"), plain.get("required")
        parts = properties if isinstance(properties, dict) else {}
        optional_null = frozenset(
            key
            for key, part in parts.items()
            if isinstance(required, list)
            and key in required
            and isinstance(part, dict | bool)
            and validator_of(part).is_valid(None)
        )
        stated_defaults: dict[str, JsonValue] = {}
        for key, part in parts.items() if fills_defaults else ():
            if isinstance(part, dict) and (default := part.get("default")) is not None:
                if not validator_of(part).is_valid(default):
                    raise ValueError(f"the default of {key} does not fit: {json.dumps(default)}")
                stated_defaults[key] = default
    except (jsonschema_rs.ReferencingError, ValueError, RecursionError) as error:
        said = fault_of_schema(error)
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"a JSON Schema is expected: {said}") from error
    if plain.get("type", "object") != "object":
        fact = f"its type is {json.dumps(plain['type'])}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"the JSON Schema of an object is expected: {fact}")
    if not _admits_objects(plain):
        fact = "the JSON Schema of an object is expected: none of its alternatives is one of an object"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact)

    class Described(SchemaModel):
        described = {"type": "object", **({} if parts else {"additionalProperties": True}), **plain}
        checks = validator
        names = tuple(parts)
        nullable = optional_null
        defaults = stated_defaults

    Described.__name__ = Described.__qualname__ = name
    return Described


def validator_of(schema: Mapping[str, JsonValue] | bool) -> Validator:
    """The validator of a schema, which never looks anything up elsewhere.

    Raises `ValueError` for a schema that is not valid; `fault_of_schema` says why.
    """
    import jsonschema_rs  # slow to import, hardly ever needed

    # Linear in the length of the text, whatever the pattern.
    patterns = jsonschema_rs.RegexOptions()
    stated = schema if isinstance(schema, bool) else dict(schema)
    try:
        return jsonschema_rs.validator_for(stated, offline=True, pattern_options=patterns)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from error


def fault_of_schema(error: Exception) -> str:
    """Reason why a schema is not valid, on one line."""
    return shortened(str(error).strip().splitlines()[0])


def fault_of_value(error: ValidationError) -> tuple[str, str]:
    """Where a value does not fit its schema, as a path beneath it, and why."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    message = error.message  # a long value stands at its beginning
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]}…{message[-_LONGEST // 2 :]}"
    return path, message


def shortened(text: str) -> str:
    """`text` as part of a message."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _told(error: ValidationError) -> str:
    path, message = fault_of_value(error)
    return f"{path.removeprefix('.')}: {message}" if path else message


def _without_references(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema as planners see it: what it refers to stands in the place of the reference."""
    import jsonschema_rs

    whole = jsonschema_rs.dereference(dict(schema)) if "$ref" in json.dumps(schema) else dict(schema)
    if len(json.dumps(whole)) > MOST_SCHEMA:
        raise ValueError(f"it has more than {MOST_SCHEMA:,} characters")
    return {key: _without_circles(value) for key, value in whole.items() if key not in _OF_DOCUMENT}


def _admits_objects(schema: JsonValue) -> bool:
    """False if no object fits, as far as the types in it and in its parts say."""
    if not isinstance(schema, dict):
        return schema is not False
    types, every = schema.get("type", "object"), schema.get("allOf")
    choices = [found for key in ("anyOf", "oneOf") if isinstance(found := schema.get(key), list)]
    return (
        "object" in (types if isinstance(types, list) else [types])
        and all(any(map(_admits_objects, one)) for one in choices)
        and (not isinstance(every, list) or all(map(_admits_objects, every)))
    )


def _without_circles(value: JsonValue) -> JsonValue:
    """A reference that is left leads to what contains it: anything may stand there, as far as planners see."""
    if isinstance(value, list):
        return [_without_circles(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {} if "$ref" in value else {key: _without_circles(part) for key, part in value.items()}
