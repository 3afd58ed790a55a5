"""Print the published JSON Schemas (`lcp schema`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import click
from pydantic import BaseModel, ConfigDict, JsonValue

from lcp_engine import Worker
from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_out
from lcp_engine.config_file import config_model
from lcp_engine.core.kinds import kind_named
from lcp_engine.core.mission.parse import mission_file
from lcp_engine.core.protocol.actions import Action, Problem
from lcp_engine.core.safe_text import json_block
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.admission import kind_of
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.models.prompts.reply_schema import ROOT, reply_schema
from lcp_engine.features.notices.notice import Notice
from lcp_engine.features.plans.execution_plan import ExecutionPlan
from lcp_engine.features.universal.envelopes import (
    AgentAnswer,
    AgentResponse,
    ErrorEnvelope,
    FileOperation,
    MemoryEntry,
    ToolDefinition,
)
from lcp_engine.features.universal.json_schema import DIALECT, action_schema
from lcp_engine.features.universal.request import AgentRequest
from lcp_engine.features.universal.schema import universal_schema
from lcp_engine.features.universal.structured import StructuredResponse
from lcp_engine.planners.base import Question
from lcp_engine.workers.registry import find_workers

_Schema = Mapping[str, JsonValue]


class Check(BaseModel):
    """Output of `lcp check`."""

    model_config = ConfigDict(extra="forbid")

    valid: bool
    action: Action | None
    errors: list[Problem]
    recovered: list[str]
    warnings: list[str]


@click.command("schema", cls=LcpCommand)
@click.argument("name", default="lcp", metavar="[NAME]")
@click.option(
    "--strict",
    is_flag=True,
    help="For constrained decoding: closed objects, all keys required. Only for dialects.",
)
@pass_invocation
def schema_command(invocation: Invocation, name: str, strict: bool) -> int:
    """Print the JSON Schema NAME (draft 2020-12).

    lcp (the default) and universal are the dialects of planners; mission, request and config describe files; agent
    (response or error), structured, check and notice describe output; tool_definition, memory_entry, execution_plan and
    file_operation are further envelopes of agents; KIND and KIND_result are the params and the result of each installed
    kind of job.
    """
    invocation.load_workers()
    known = _schemas()
    name = kind_named(name, find_workers())
    if name not in known:
        hint = nearest(name, list(known))
        raise LcpError(ErrorCode.NOT_FOUND, f"unknown schema {name!r}; {hint}")
    if strict:
        known = _strict_schemas()
    if name not in known:
        names = " and ".join(known)
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"--strict is only for the schemas {names}, not {name!r}")
    print_out(json_block(known[name]()), is_exact=True)
    return Exit.DONE


_REFERENCE = "https://unifiedagents.org/schemas/{}.json"
_URN = "urn:lcp-engine:schema:{}:1"
_ENVELOPES: Mapping[str, tuple[str, type[BaseModel]]] = {
    "request": ("request", AgentRequest),
    "response": ("response", AgentResponse),
    "error": ("error", ErrorEnvelope),
    "tool_definition": ("tool-definition", ToolDefinition),
    "memory_entry": ("memory-entry", MemoryEntry),
    "execution_plan": ("execution-plan", ExecutionPlan),
}
"""The envelopes of the reference: the last part of its `$id`, and our model."""


def _schemas() -> dict[str, Callable[[], _Schema]]:
    """The published schemas by their names; each but those of kinds has a `$id` that no release changes."""
    workers = find_workers()
    params = {kind: worker.params for kind, worker in workers.items()}
    own: dict[str, Callable[[], _Schema]] = {
        "mission": _of(mission_file()),
        "config": _of(config_model()),
        "check": _of(Check),
        "agent": _of(AgentAnswer),
        "structured": _of(StructuredResponse),
        "file_operation": _of(FileOperation),
        "notice": _of(Notice),
        "lcp": lambda: action_schema(params),
        "universal": universal_schema,
    }
    return {
        **{kind: _of_params(worker) for kind, worker in workers.items()},
        **{f"{kind}_result": _of(worker.result) for kind, worker in workers.items()},
        **{name: partial(_identified, _URN.format(name), schema) for name, schema in own.items()},
        **{
            name: partial(_identified, _REFERENCE.format(last), _of(model))
            for name, (last, model) in _ENVELOPES.items()
        },
    }


def _identified(uri: str, schema: Callable[[], _Schema]) -> _Schema:
    made = schema()
    return {"$schema": made["$schema"], "$id": uri, **made}


def _strict_schemas() -> dict[str, Callable[[], _Schema]]:
    """The schemas for constrained decoding when no mission narrows them."""
    workers = find_workers().values()
    kinds = [kind_of(worker, is_held=False) for worker in workers]
    question = Question(mission_id=0, number=1, turn=1, goal="", root=ROOT, prompt="", kinds=kinds)
    return {
        "lcp": lambda: {"$schema": DIALECT, **reply_schema(question, narrow=False)},
        "universal": lambda: {"$schema": DIALECT, **reply_schema(question, "universal", narrow=False)},
    }


def _of_params(worker: Worker[BaseModel]) -> Callable[[], _Schema]:
    """The schema of a kind's params, with examples, so that it can be used without this page."""
    examples: list[JsonValue] = [dict(example.params) for example in worker.examples]
    more: _Schema = {"examples": examples} if examples else {}
    return lambda: {**_of(worker.params)(), "title": worker.kind, **more}


def _of(model: type[BaseModel]) -> Callable[[], _Schema]:
    return lambda: {"$schema": DIALECT, **model.model_json_schema()}
