"""Describe kinds that are tools of MCP servers: a server as a file of kinds states it, and its tools as it stated them.

What a server says of its tools is kept beside the file of kinds (`kinds.tools.json`) when a person asks for it
(`lcp kinds --update`), and nothing of it is trusted: a tool that says something else later is not called.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from lcp_engine.core.programs.commands import split_command
from lcp_engine.core.protocol.schema_model import schema_model
from lcp_engine.core.refused_values import explain_first
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.servers.external_worker import (
    EnvironmentName,
    ExternalProgram,
    NonEmpty,
    ProgramLimits,
    found_command,
    python_process,
    readable_needs,
)
from lcp_engine.workers.base import Worker, refuse_to_execute
from lcp_engine.workers.registry import check_kind

MOST_TOOLS = 1_000
"""Tools of one server."""
LIST_TOOLS = "tools/list"
"""The kind of the job that asks a server for its tools; no job of a mission can have it."""
_BRIDGE = "lcp_engine.features.programs.servers.mcp_bridge"
_MOST_DESCRIPTION = 1_000
_MOST_FILE = 64 * 1024 * 1024
_UPDATE = "Ask its servers for their tools with `lcp kinds --update`."
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


class McpServer(ProgramLimits):
    """What a file of kinds states of one server."""

    command: Annotated[tuple[NonEmpty, ...], BeforeValidator(split_command)] = Field(
        default=(), description="The program that is the server, over stdin and stdout."
    )
    url: str | None = Field(default=None, description="Where a server is reached that somebody else runs.")
    token: EnvironmentName | None = Field(
        default=None, description="The variable of the runner's environment with the bearer token for `url`."
    )
    tools: tuple[NonEmpty, ...] | None = Field(
        default=None, description="The tools that become kinds; without it all."
    )
    without_effects: tuple[NonEmpty, ...] = Field(
        default=(), description="Tools that change nothing: their jobs are not held."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 1
    concurrency: Annotated[int, Field(ge=1)] | None = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.command) == (self.url is not None):
            raise ValueError("a command or a url is expected, and not both")
        if self.token is not None and self.url is None:
            raise ValueError("token is for a url; needs.environment names the variables of a command")
        if self.url is not None:
            _check_url(self.url, has_token=self.token is not None)
        return self


class McpTool(BaseModel):
    """What a server says of one of its tools."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True)

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, JsonValue]
    output_schema: dict[str, JsonValue] | None = None
    annotations: dict[str, JsonValue] | None = None

    @property
    def summary(self) -> str:
        """Its description in a line."""
        return " ".join((self.description or self.title or "").split())[:_MOST_DESCRIPTION]

    @property
    def stated(self) -> dict[str, JsonValue]:
        """What it says, as JSON."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @property
    def digest(self) -> str:
        """A hash of all that it says."""
        return hashlib.sha256(json.dumps(self.stated, sort_keys=True).encode()).hexdigest()


class ServerTools(BaseModel):
    """The tools of a server, as it answered when it was asked for them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    server: str = ""
    """Its name and version, as it says."""
    tools: tuple[McpTool, ...] = ()
    refused: dict[str, str] = {}
    """Reasons why what it lists besides is no tool that can be called, by name. They are not kept."""
    unanswered: bool = False
    """True if it has never answered, while other servers of the file did."""


class AcceptedTool(BaseModel):
    """The tool of a kind, and a hash of what it said when it was accepted."""

    model_config = ConfigDict(frozen=True)

    name: str
    digest: str


class Bridge(BaseModel):
    """How a runner's process (`mcp_bridge.py`) reaches a server, and which tools it may call."""

    model_config = ConfigDict(frozen=True)

    command: tuple[str, ...]
    url: str | None
    token: str | None
    accepted: dict[str, AcceptedTool] = {}
    """By kind."""


def servers_in(section: JsonValue) -> dict[str, McpServer]:
    """The servers that the section `mcp` of a file of kinds states, by name. Raises `INVALID_ARGUMENT`."""
    if not isinstance(section, Mapping) or not section:
        fact = "mcp: a mapping is expected, from the name of each server to what it is"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact)
    found = {}
    for name, stated in section.items():
        if not _SERVER_NAME.fullmatch(name):
            fact = f"mcp: the name of a server is 1 to 32 of the characters A-Z a-z 0-9 _ -; found {name!r}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, fact)
        try:
            found[name] = McpServer.model_validate(stated)
        except ValidationError as refused:
            fault = explain_first(refused, McpServer, "mcp", name)
            raise LcpError(ErrorCode.INVALID_ARGUMENT, fault) from refused
    return found


def tools_file(file: Path) -> Path:
    """Where the tools of the servers of a file of kinds are kept."""
    return file.with_suffix(".tools.json")


def read_tools(file: Path) -> dict[str, ServerTools]:
    """What a file of tools has of each server; nothing if it is not there. Raises `INVALID_ARGUMENT`."""
    try:
        if file.stat().st_size > _MOST_FILE:
            raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{file}: it is too large", advice=_UPDATE)
        found = json.loads(file.read_text(encoding="utf-8"))
        return {name: ServerTools.model_validate(stated) for name, stated in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, RecursionError) as refused:
        fact = f"{file}: the tools of MCP servers are expected, as `lcp kinds --update` writes them"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact, advice=_UPDATE) from refused


def text_of_tools(tools: Mapping[str, ServerTools]) -> str:
    """The content of a file of tools."""
    stated = {
        name: {"unanswered": True}
        if one.unanswered
        else {"server": one.server, "tools": [tool.stated for tool in one.tools]}
        for name, one in sorted(tools.items())
    }
    return json.dumps(stated, indent=2, ensure_ascii=False) + "\n"


def tool_kinds(
    name: str, server: McpServer, known: Mapping[str, ServerTools], base: Path
) -> Iterator[Worker[BaseModel]]:
    """The workers of a server's tools; those that cannot be kinds are left out.

    Raises `INVALID_ARGUMENT` if the server was never asked for its tools, or has none of a name that is stated, and
    what `bridge_to` raises.
    """
    if name not in known:
        fact = f"mcp.{name}: the tools of this server are not known yet; `lcp kinds --update` asks for them"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact, advice=_UPDATE)
    if known[name].unanswered:
        return
    tools = {tool.name: tool for tool in known[name].tools}
    for key, stated in (("tools", server.tools or ()), ("without_effects", server.without_effects)):
        for one in stated:
            if one not in tools:
                fact = f"mcp.{name}.{key}: the server has no tool {one!r}; {nearest(one, list(tools))}"
                raise LcpError(ErrorCode.INVALID_ARGUMENT, fact)
    reasons = left_out(name, server, known[name].tools)
    chosen = [tool for tool in tools.values() if tool.name not in reasons]
    accepted = {kind_of(name, tool): AcceptedTool(name=tool.name, digest=tool.digest) for tool in chosen}
    program = bridge_to(name, server, base, accepted)
    for tool in chosen:
        yield _worker(name, server, tool, program)


def left_out(name: str, server: McpServer, tools: Sequence[McpTool]) -> dict[str, str]:
    """Reasons why tools of a server are not kinds, by their names; the others are kinds."""
    stated = [tool for tool in tools if is_stated(server, tool)]
    kinds = Counter(kind_of(name, tool) for tool in stated)
    reasons = {tool.name: _NOT_STATED for tool in tools if not is_stated(server, tool)}
    for tool in stated:
        kind = kind_of(name, tool)
        same = [one.name for one in stated if kinds[kind] > 1 and kind_of(name, one) == kind]
        if (reason := _why_no_kind(kind, tool, same)) is not None:
            reasons[tool.name] = reason
    return reasons


_NOT_STATED = "not among the tools that the file states"


def is_stated(server: McpServer, tool: McpTool) -> bool:
    """True if the file of kinds lets a tool become a kind."""
    return server.tools is None or tool.name in server.tools


def _why_no_kind(kind: str, tool: McpTool, same: Sequence[str]) -> str | None:
    if len(set(same)) > 1:
        names = " and ".join(map(repr, same))
        return f"the tools {names} would all be the kind {kind!r}; state one of them under `tools`"
    if same:
        return "the server has several tools of this name"
    if not all(re.split(r"[./]", tool.name)):
        return f"its name is expected to have no empty part between dots; found {tool.name!r}"
    try:
        check_kind(kind, {}, "its name")
        schema_model("Params", tool.input_schema)
        schema_model("Structured", tool.output_schema or {})
    except LcpError as error:
        return error.failed.message
    return None


def bridge_to(
    name: str, server: McpServer, base: Path, accepted: Mapping[str, AcceptedTool]
) -> ExternalProgram:
    """The program between a runner and a server. Raises `INVALID_ARGUMENT` if it cannot be run."""
    subject = f"mcp.{name}"
    if find_spec("mcp") is None:
        fact = f"{subject}: MCP servers need the package mcp, which is not installed"
        advice = "Install it: pip install 'lcp-engine[mcp]'."
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact, advice=advice)
    command: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    if server.command:
        found = found_command(subject, server.command, base)
        command, files = (found.path, *found.arguments), found.files
        starts = (found.path,)
    needs = readable_needs(subject, server.needs, base)
    if server.url is not None:
        named = () if server.token is None else (server.token,)
        environment = tuple(dict.fromkeys((*needs.environment, *named)))
        needs = needs.model_copy(update={"network": True, "environment": environment})
    bridge = Bridge(command=command, url=server.url, token=server.token, accepted=dict(accepted))
    stated = bridge.model_dump_json()
    python = python_process(_BRIDGE, stated)
    return replace(
        python,
        files=files,
        starts=starts,
        long_lived=not needs.root,
        concurrency=server.concurrency,
        memory=server.memory,
        needs=needs,
        name=f"the MCP server {server.url or ' '.join(server.command)}",
        shared=stated,
        call=(_BRIDGE, stated),
    )


def _worker(name: str, server: McpServer, tool: McpTool, program: ExternalProgram) -> Worker[BaseModel]:
    kind = kind_of(name, tool)
    has_effects = tool.name not in server.without_effects
    return Worker[BaseModel](
        kind=kind,
        params=schema_model(f"{kind} params", tool.input_schema),
        result=schema_model(f"{kind} result", _result_schema(tool)),
        execute=refuse_to_execute("an MCP server is asked by a runner, or by `lcp try`"),
        description=tool.summary or f"The tool {tool.name} of the MCP server {name}.",
        has_effects=has_effects,
        timeout=server.timeout,
        max_attempts=server.max_attempts,
        backoff=server.backoff,
        rate_limit=server.rate_limit,
        max_running=server.max_running,
        reads_files=program.must_be_alone(has_effects=has_effects),
        shows="text",
        execution=replace(program, claims=_claims(tool)),
    )


def kind_of(server: str, tool: McpTool) -> str:
    """The kind that a tool of a server becomes."""
    return f"{server}.{tool.name.replace('/', '.')}"


def _result_schema(tool: McpTool) -> dict[str, JsonValue]:
    stated = tool.output_schema
    structured: dict[str, JsonValue] = (
        {"type": "object"} if stated is None else schema_model("Structured", stated).described
    )
    left_out: dict[str, JsonValue] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Content that is no text.",
    }
    return {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "The texts that the tool answered."},
            "structured": {**structured, "description": "The value that the tool answered."},
            "left_out": left_out,
        },
        "required": ["text"] if stated is None else ["text", "structured"],
        "additionalProperties": False,
    }


def _claims(tool: McpTool) -> str | None:
    """What the annotations of a tool say of its effects."""
    stated = tool.annotations or {}
    said = [
        words[stated[key] is True] for key, words in _ANNOTATIONS.items() if isinstance(stated.get(key), bool)
    ]
    return ", ".join(said) or None


_ANNOTATIONS = {
    "readOnlyHint": ("changes things", "changes nothing"),
    "destructiveHint": ("destroys nothing", "may destroy"),
    "idempotentHint": ("adds up when repeated", "may be repeated"),
    "openWorldHint": ("stays on this machine", "reaches beyond it"),
}


def _check_url(url: str, *, has_token: bool) -> None:
    """Raises ValueError."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as refused:
        raise ValueError(f"url: {refused}") from refused
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("url is expected to begin with https:// or http://, and to name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "url has a password; put it into a variable of the environment, and name that as token"
        )
    if has_token and parts.scheme == "http" and not _is_this_machine(host):
        raise ValueError("url is expected to be https: a token would cross the network in the clear")


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
