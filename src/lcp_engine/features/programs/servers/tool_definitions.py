"""Kinds that a file describes as the tools of other agents (ToolDefinition), each with the program that executes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue, ValidationError

from lcp_engine.core.json_values import object_in
from lcp_engine.core.kinds import tool_ids
from lcp_engine.core.refused_values import explain_first
from lcp_engine.core.summaries import nearest_name
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.servers.external_worker import ProgramKind
from lcp_engine.features.universal.envelopes import ToolDefinition

_KIND = re.compile("[A-Za-z0-9_.-]{1,64}")
_SAME = ("description", "rate_limit", "examples")
"""Keys that a definition and a kind of a file share."""
_TRANSLATED = ("params", "result", "permission")
"""Keys of a kind of a file for which a definition has others."""


def definitions_in(document: JsonValue) -> list[dict[str, JsonValue]] | None:
    """The definitions in a file: one, or several as `lcp kinds --tools` prints them; None if it describes kinds."""
    if not isinstance(document, dict):
        return None
    if isinstance(tools := document.get("tools"), list) and len(document) == 1:
        return [tool if isinstance(tool, dict) else {} for tool in tools]
    # A file of kinds has a mapping for each.
    return [document] if any(isinstance(document.get(key), str) for key in ("id", "name")) else None


def kinds_of(definitions: list[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    """These tools as a file of kinds states them. Raises `INVALID_ARGUMENT`."""
    kinds: dict[str, JsonValue] = {}
    for nth, stated in enumerate(definitions):
        place = stated["id"] if isinstance(stated.get("id"), str) else f"tools[{nth}]"
        try:
            tool = ToolDefinition.model_validate(stated)
        except ValidationError as refused:
            fault = explain_first(refused, ToolDefinition, str(place))
            raise LcpError(ErrorCode.INVALID_ARGUMENT, fault) from refused
        kind = _kind_of(tool)
        if kind in kinds:
            raise LcpError(
                ErrorCode.INVALID_ARGUMENT, f"{place}: another tool of the file is the kind {kind}"
            )
        kinds[kind] = {**dict(_of_program(tool, stated))}
    return kinds


def _kind_of(tool: ToolDefinition) -> str:
    """The kind of a tool: its name if its id is made of that, else one made of its id."""
    is_kind = _KIND.fullmatch(tool.name) is not None and tool_ids([tool.name])[tool.name] == tool.id
    return tool.name if is_kind else tool.id.removeprefix("tool-").replace("-", "_")


def _of_program(tool: ToolDefinition, stated: Mapping[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    own = [key for key in ProgramKind.model_fields if key not in (*_SAME, *_TRANSLATED)]
    for key, value in stated.items():
        if key in own:
            yield key, value
        elif key not in ToolDefinition.model_fields and (meant := nearest_name(key, own)) is not None:
            # Other agents may state more, such as a category; a need or a limit that is misspelt is not passed over.
            fact = f"{tool.id}.{key}: is not a known key; did you mean {meant!r}?"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, fact)
    if "command" not in stated:
        fact = f"{tool.id}.command: is required and missing: the program that executes the jobs, as in a file of kinds"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact)
    yield "description", tool.description
    yield "params", _schema_of(stated["parameters"])
    yield "result", tool.result_schema
    yield "permission", tool.permission_level
    examples: list[JsonValue] = [
        {"params": one.input, "result": one.output}
        for one in tool.examples or ()
        if isinstance(one.output, dict)
    ]
    yield "examples", examples
    if tool.rate_limit is not None and tool.rate_limit.requests_per_minute is not None:
        yield "rate_limit", tool.rate_limit.as_json()


def _schema_of(stated: JsonValue) -> JsonValue:
    """The JSON Schema of parameters, each with what it states besides, such as `maximum`."""
    parameters = {name: part for name, part in object_in(stated).items() if isinstance(part, dict)}
    properties: dict[str, JsonValue] = {
        name: {key: value for key, value in part.items() if key != "required"}
        for name, part in parameters.items()
    }
    required: list[JsonValue] = [name for name, part in parameters.items() if part.get("required")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
