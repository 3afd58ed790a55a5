"""Describe installed kinds of jobs, and run their examples."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel, JsonValue
from pydantic.errors import PydanticInvalidForJsonSchema

from lcp_engine.core.kinds import tool_ids
from lcp_engine.core.limits.permits import RateLimit
from lcp_engine.core.safe_text import json_line
from lcp_engine.features.authoring.run_job import run_job
from lcp_engine.features.programs.servers.external_worker import ExternalProgram, program_of
from lcp_engine.features.universal import envelopes
from lcp_engine.features.universal.envelopes import ToolDefinition, ToolExample, ToolParameter
from lcp_engine.workers.base import Example, ExecutedBy, Permission, Worker, Workers


def describe(worker: Worker[BaseModel]) -> dict[str, JsonValue]:
    """All that a kind states, as `lcp kinds --json` prints it."""
    return {
        "kind": worker.kind,
        "description": worker.description,
        "role": worker.role.value,
        "params": _schema(worker.params),
        "result": _schema(worker.result),
        "shows": worker.shows,
        "examples": [_example(example) for example in worker.examples],
        "permission": worker.permission.value,
        "has_effects": worker.has_effects,
        "writes": worker.writes,
        "is_held": is_held(worker),
        "executed_by": worker.executed_by.value,
        "is_confined": any(how is not None for how in (worker.confined, worker.execution)),
        "program": None if (program := program_of(worker)) is None else _program(program),
        "timeout_seconds": worker.timeout,
        "max_attempts": worker.max_attempts,
        "backoff_seconds": worker.backoff,
        "rate_limit": None if worker.rate_limit is None else worker.rate_limit.model_dump(),
        "max_running": worker.max_running,
    }


@dataclass(frozen=True)
class KindField:
    """A key of the params or of the result of a kind, in words."""

    name: str
    type: str
    is_required: bool
    description: str


NO_FIELDS = "any"
"""What is said of a schema that names no key."""
NO_SCHEMA = "no schema can describe them"


def fields_of(schema: JsonValue) -> Iterator[KindField]:
    """The keys that a schema of `describe` names."""
    stated = schema if isinstance(schema, dict) else {}
    properties, required = stated.get("properties"), stated.get("required")
    needed = required if isinstance(required, list) else []
    for name, part in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(part, dict):
            said = part.get("description")
            yield KindField(name, _type(part), name in needed, said if isinstance(said, str) else "")


def _type(schema: Mapping[str, JsonValue]) -> str:
    branches = schema.get("anyOf")
    if isinstance(branches, list):
        words = [_type(branch) for branch in branches if isinstance(branch, dict)]
        return " or ".join(word for word in words if word != "null")
    if "const" in schema:
        return json_line(schema["const"])
    values = schema.get("enum")
    if isinstance(values, list):
        return " or ".join(json_line(value) for value in values)
    kind = schema.get("type")
    return kind if isinstance(kind, str) else "object" if "$ref" in schema else "any"


def effects_in_words(described: Mapping[str, JsonValue]) -> str:
    """Whether the jobs of a kind change anything; `described` is what `describe` returns."""
    if described["writes"]:
        return "writes files"
    return "has effects" if described["has_effects"] else "has no effects"


def executed_in_words(described: Mapping[str, JsonValue]) -> str:
    """Who executes the jobs of a kind."""
    by_role = {"planner": "by the mission's planner", "person": "by a person, who answers"}
    if (by := by_role.get(str(described["executed_by"]))) is not None:
        return by
    if described["program"] is not None:
        return "by a program, confined"
    return "confined to the root" if described["is_confined"] else "in the runner's process"


def needs_in_words(needs: JsonValue) -> str:
    """What is there for the program of a kind."""
    given = needs if isinstance(needs, dict) else {}
    lists = {key: value for key, value in given.items() if isinstance(value, list) and value}
    said = [
        *(said for value, said in _ROOT.items() if given.get("root") == value),
        *(["network"] if given.get("network") else []),
        *(f"{_WORDS[key]} {', '.join(map(str, value))}" for key, value in lists.items()),
    ]
    return "; ".join(said) or "nothing but the system's programs"


_ROOT = {
    True: "the root, which it may not change",
    "read": "the root, whose changes are dropped",
    "write": "the root, whose changes are kept or held",
}
_WORDS = {"environment": "the environment variables", "read": "to read"}


def tool_definitions(workers: Iterable[Worker[BaseModel]]) -> dict[str, ToolDefinition]:
    """By kind, its definition. Of kinds with the same id all but the first by name have a part of a hash in theirs."""
    known = {worker.kind: worker for worker in workers}
    ids = tool_ids(known)
    return {
        kind: tool_definition(worker).model_copy(update={"id": ids[kind]}) for kind, worker in known.items()
    }


def tool_definition(worker: Worker[BaseModel]) -> ToolDefinition:
    """A kind as the ToolDefinition of other agents' tools; other kinds may have the same id."""
    params, result = _schema(worker.params), _schema(worker.result)
    stated = params if isinstance(params, dict) else {}
    properties, required = stated.get("properties"), stated.get("required")
    needed = required if isinstance(required, list) else []
    return ToolDefinition(
        id=tool_ids([worker.kind])[worker.kind],
        name=worker.kind,
        description=worker.description,
        parameters={
            name: _parameter(name, part, is_required=name in needed)
            for name, part in (properties if isinstance(properties, dict) else {}).items()
        },
        result_schema=result if isinstance(result, dict) else {},
        examples=[ToolExample(input=dict(one.params), output=dict(one.result)) for one in worker.examples]
        or None,
        permission_level=worker.permission.value,
        rate_limit=_rate_limit(worker.rate_limit),
    )


def _rate_limit(rate: RateLimit | None) -> envelopes.RateLimit | None:
    """A rate in whole requests a minute, never more than there are."""
    if rate is None:
        return None
    return envelopes.RateLimit(requests_per_minute=int(rate.requests_per_minute), burst=rate.burst)


def _parameter(name: str, schema: JsonValue, *, is_required: bool) -> ToolParameter:
    stated = schema if isinstance(schema, dict) else {}
    branches = stated.get("anyOf")
    alternatives = [one for one in branches if isinstance(one, dict)] if isinstance(branches, list) else []
    # A parameter has one type: the first of several, beside null, which is no value.
    only = next((one for one in alternatives if one.get("type") != "null"), stated)
    values = [only["const"]] if "const" in only else only.get("enum")
    said = stated.get("description", only.get("description"))
    return ToolParameter.model_validate(
        {
            "type": only.get("type") or _type_of(values),
            "description": said or name,
            "required": is_required,
            "default": stated.get("default"),
            "enum": values,
        }
    )


def _type_of(values: JsonValue) -> str:
    """The type of the values that a schema without one lists."""
    first = values[0] if isinstance(values, list) and values else {}
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(first), "object")


def _program(program: ExternalProgram) -> dict[str, JsonValue]:
    return {
        "command": [program.path, *program.arguments[1:]],
        "name": program.name or shlex.join((program.path, *program.arguments[1:])),
        "long_lived": program.long_lived,
        "concurrency": program.concurrency,
        "memory_bytes": program.memory,
        "needs": program.needs.model_dump(mode="json"),
        "claims": program.claims,
    }


def is_held(worker: Worker[BaseModel]) -> bool:
    """True if its jobs wait for a person where no rule says otherwise (R5)."""
    by_kind = worker.permission is not Permission.USER or worker.executed_by is ExecutedBy.PERSON
    return worker.has_effects or by_kind


def failed_examples(worker: Worker[BaseModel], workers: Workers) -> Iterator[str]:
    """What is wrong with the results of a kind's examples, each run in a directory of its own; a sentence each."""
    for number, example in enumerate(worker.examples, 1):
        if example.is_run and worker.executed_by is ExecutedBy.RUNNER:
            wrong = _run(worker.kind, example, workers)
            if wrong is not None:
                yield f"example {number}: {wrong}"


def _run(kind: str, example: Example, workers: Workers) -> str | None:
    with TemporaryDirectory(prefix="lcp-kinds-") as scratch:
        for path, content in example.files.items():
            place = Path(scratch, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8", newline="")
        done = run_job(kind, example.params, scratch, workers=workers)
    if done.result is None:
        return "it failed without an error" if done.error is None else done.error.user_message
    return _difference(example.result, done.result)


def _difference(expected: Mapping[str, JsonValue], found: Mapping[str, JsonValue]) -> str | None:
    for key, value in expected.items():
        if key not in found:
            return f"the result has no {key!r}"
        if found[key] != value:
            return f"{key} is {found[key]!r} in the result; {value!r} is expected"
    return None


def _schema(model: type[BaseModel]) -> JsonValue:
    try:
        return model.model_json_schema()
    except PydanticInvalidForJsonSchema:
        return None


def _example(example: Example) -> JsonValue:
    return {"params": dict(example.params), "result": dict(example.result), "files": dict(example.files)}
