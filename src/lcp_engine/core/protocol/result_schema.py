"""The schema of a mission's own result: what the reply that completes the mission has to carry. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from pydantic import JsonValue

from lcp_engine.core.protocol.actions import Problem
from lcp_engine.core.protocol.schema_model import (
    MOST_SCHEMA,
    fault_of_schema,
    fault_of_value,
    validator_of,
)
from lcp_engine.errors import UnexpectedValue

if TYPE_CHECKING:
    from jsonschema_rs import Validator

MOST_RESULT = 256 * 1024
"""Characters of a result, as JSON."""
MOST_PROBLEMS = 20
_MOST_ROUNDS = 10
RESULT = "result"
"""The key of a reply that holds it."""


@dataclass(frozen=True)
class ResultSchema:
    """The JSON Schema of a result, in draft 2020-12 unless its `$schema` says otherwise.

    Where it is not `required`, a reply may leave the result out, but not state one that does not fit.
    """

    schema: Mapping[str, JsonValue]
    required: bool = True

    def read(self, result: JsonValue) -> tuple[JsonValue, list[Problem]]:
        """`result`, where a null that does not fit reads as absent (R2); and why it does not fit.

        At most `MOST_PROBLEMS` reasons are named.
        """
        length = len(json.dumps(result, ensure_ascii=False, separators=(",", ":")))
        if length > MOST_RESULT:
            message = f"a result has at most {MOST_RESULT:,} characters as JSON; found {length:,}"
            return result, [Problem(path=RESULT, message=message)]
        fitted = self._without_nulls(result)
        return fitted, [*self._problems(fitted)]

    def _without_nulls(self, result: JsonValue) -> JsonValue:
        """A decoder in strict mode has to write every key, and writes null for what it leaves out."""
        for _ in range(_MOST_ROUNDS):
            faults = [fault.instance_path for fault in self._validator.iter_errors(result)]
            if not faults:
                return result
            nulls = [
                path for path in faults if path and isinstance(path[-1], str) and _at(result, path) is None
            ]
            if not nulls:
                bare = _bare(result)
                return bare if self._validator.is_valid(bare) else result
            result = deepcopy(result)
            for path in nulls:
                parent = _at(result, path[:-1])
                if isinstance(parent, dict):
                    parent.pop(str(path[-1]), None)
        return result

    def _problems(self, result: JsonValue) -> Iterator[Problem]:
        faults = self._validator.iter_errors(result)
        for fault in islice(faults, MOST_PROBLEMS):
            path, message = fault_of_value(fault)
            yield Problem(path=f"{RESULT}{path}", message=message)
        if more := sum(1 for _ in faults):
            yield Problem(path=RESULT, message=f"and {more:,} more problems")

    @cached_property
    def _validator(self) -> Validator:
        return validator_of(self.schema)


def _at(value: JsonValue, path: Sequence[str | int]) -> JsonValue:
    for part in path:
        if isinstance(value, dict):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
    return value


def _bare(value: JsonValue) -> JsonValue:
    """The value without keys that are null."""
    if isinstance(value, list):
        return [_bare(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: _bare(part) for key, part in value.items() if part is not None}


def check_schema(schema: Mapping[str, JsonValue]) -> None:
    """Raise `ValueError`, in words that begin with `should`, unless `schema` can be that of a result."""
    try:
        length = len(json.dumps(schema, ensure_ascii=False))
    except RecursionError:
        raise UnexpectedValue("should be a JSON Schema that is nested less deeply") from None
    if length > MOST_SCHEMA:
        raise UnexpectedValue(
            f"should be a JSON Schema of at most {MOST_SCHEMA:,} characters; it has {length:,}"
        )
    try:
        validator_of(schema)
    except ValueError as refused:
        raise UnexpectedValue(f"should be a JSON Schema: {fault_of_schema(refused)}") from refused
