"""Describe installed kinds of jobs, and run their examples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel, JsonValue
from pydantic.errors import PydanticInvalidForJsonSchema

from lcp_engine.api.run_job import run_job
from lcp_engine.workers.base import Example, ExecutedBy, Permission, Worker, Workers
from lcp_engine.workers.external import ExternalProgram


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
        "is_confined": any(how is not None for how in (worker.confined, worker.command, worker.program)),
        "program": None if worker.program is None else _program(worker.program),
        "timeout_seconds": worker.timeout,
        "max_attempts": worker.max_attempts,
        "backoff_seconds": worker.backoff,
    }


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
    """Whether its jobs wait for a person where no rule says otherwise (R5)."""
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
