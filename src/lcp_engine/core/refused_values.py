"""Say in words what is wrong with a value that a file, an option or a variable states. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails

from lcp_engine.core.protocol.actions import RULE
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import Json, UnexpectedValue
from lcp_engine.feature import absent

_EXPECTATIONS: Mapping[str, str] = {
    "string_type": "should be text",
    "string_too_short": "should be text that is not empty",
    "string_pattern_mismatch": "should be text that is not empty",
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "too_short": "should be a list that is not empty",
    "model_type": "should be a mapping",
    "model_attributes_type": "should be a mapping",
    "dict_type": "should be a mapping",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "finite_number": "should be a number",
    "decimal_type": "should be a number",
    "decimal_parsing": "should be a number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
}
_BOUNDS = frozenset(
    {
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "multiple_of",
        "literal_error",
        "enum",
    }
)
"""The errors whose message by pydantic says what the input should be, and not what it is."""
_MAY_BE_SECRET = re.compile(
    r"(^|_)(url|endpoint|server|host|headers|key|apikey|token|secret|password|authorization|approvers)$",
    re.IGNORECASE,
)
_NOT_IN_SCHEMA = get_args(SkipJsonSchema[bool])[-1]
_NOT_BLANK = r"\S"
_LONGEST = 60


@dataclass(frozen=True)
class Fault:
    """Fault, in a line, with its place: the keys and indexes that lead to it."""

    line: str
    place: tuple[str | int, ...]


def details_of(faults: Sequence[Fault]) -> dict[str, Json]:
    """The details of an error about faults: `problems`, their lines, and `places`, their keys and indexes."""
    return {
        "problems": [fault.line for fault in faults],
        "places": [[*fault.place] for fault in faults],
    }


def explain_first(refused: ValidationError, model: type[BaseModel], *above: str) -> str:
    """The first fault of what should be a `model`: `caps.read_bytes: should be a whole number, not "a"`.

    `above` is what its place begins with. A misspelt key comes before one that is missing, which it was meant for.
    """
    first = min(refused.errors(include_url=False), key=is_missing)
    place, said = ".".join(map(str, (*above, *first["loc"]))), explain(first, model)
    return f"{place}: {said}" if place else said


def explain(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Fault of one value of a `model`, without its place: what it should be, and what it is.

    The value of a key that may hold a secret, by its name, is not shown.
    """
    place, context = error["loc"], error.get("ctx", {})
    if error["type"] == RULE:
        return error["msg"]
    match error["type"]:
        case "missing":
            return "is required and missing"
        case "extra_forbidden":
            missing = absent(str(place[0])) if len(place) == 1 else None
            return missing or f"is not a known key; {nearest(str(place[-1]), keys_at(model, place[:-1]))}"
        case "too_long" if "actual_length" in context:
            return f"at most {context['max_length']:,} are read; there are {context['actual_length']:,}"
    is_unexpected = isinstance(context.get("error"), UnexpectedValue)
    says_expected = is_unexpected or error["type"] in _EXPECTATIONS or error["type"] in _BOUNDS
    shows_value = says_expected and not any(_MAY_BE_SECRET.search(str(part)) for part in place)
    return f"{_expected(error)}, not {fact(error['input'])}" if shows_value else _expected(error)


def is_missing(error: ErrorDetails) -> bool:
    """True if a key is not there."""
    return error["type"] == "missing"


def keys_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys of a mapping at a place of a `model` that its schema names; other parts of the place lead nowhere."""
    models = [model]
    for part in place:
        fields = [
            field for one in models for name, field in one.model_fields.items() if part in (name, field.alias)
        ]
        models = [inner for field in fields for inner in _models_in(field.annotation)] or models
    return [
        field.alias or name
        for one in models
        for name, field in one.model_fields.items()
        if _NOT_IN_SCHEMA not in field.metadata
    ]


def fact(value: object) -> str:
    """A value as JSON, cut after some characters."""
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}…"


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _expected(error: ErrorDetails) -> str:
    """The words for a type or size; those of the rule itself for a value that a rule refuses."""
    if error["type"] == "string_pattern_mismatch" and error["ctx"]["pattern"] != _NOT_BLANK:
        return f"should match {error['ctx']['pattern']}"
    said = error["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return _EXPECTATIONS.get(error["type"], said)
