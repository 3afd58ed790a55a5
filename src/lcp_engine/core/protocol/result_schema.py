"""The schema of a mission's own result: what the reply that completes the mission has to carry. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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

if TYPE_CHECKING:
    from jsonschema_rs import Validator

MOST_RESULT = 256 * 1024
"""Characters of a result, as JSON."""
MOST_PROBLEMS = 20
RESULT = "result"
"""The key of a reply that holds it."""


@dataclass(frozen=True)
class ResultSchema:
    """The JSON Schema of a result, in draft 2020-12 unless its `$schema` says otherwise.

    Where it is not `required`, a reply may leave the result out, but not state one that does not fit.
    """

    schema: Mapping[str, JsonValue]
    required: bool = True

    def problems(self, result: JsonValue) -> Iterator[Problem]:
        """Why `result` does not fit, at most `MOST_PROBLEMS` reasons."""
        length = len(json.dumps(result, ensure_ascii=False, separators=(",", ":")))
        if length > MOST_RESULT:
            message = f"a result has at most {MOST_RESULT:,} characters as JSON; found {length:,}"
            yield Problem(path=RESULT, message=message)
            return
        faults = self._validator.iter_errors(result)
        for fault in islice(faults, MOST_PROBLEMS):
            path, message = fault_of_value(fault)
            yield Problem(path=f"{RESULT}{path}", message=message)
        if more := sum(1 for _ in faults):
            yield Problem(path=RESULT, message=f"and {more:,} more problems")

    @cached_property
    def _validator(self) -> Validator:
        return validator_of(self.schema)


def check_schema(schema: Mapping[str, JsonValue]) -> None:
    """Raise `ValueError`, in words that begin with `should`, unless `schema` can be that of a result."""
    try:
        length = len(json.dumps(schema, ensure_ascii=False))
    except RecursionError:
        raise ValueError("should be a JSON Schema that is nested less deeply") from None
    if length > MOST_SCHEMA:
        raise ValueError(f"should be a JSON Schema of at most {MOST_SCHEMA:,} characters; it has {length:,}")
    try:
        validator_of(schema)
    except ValueError as refused:
        raise ValueError(f"should be a JSON Schema: {fault_of_schema(refused)}") from refused
