"""Execute the jobs of kinds that are tools of an MCP server, as a program (`external.py`).

The server runs in the same confinement, and its client, the official SDK, runs nowhere else.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, NoReturn

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from httpx2 import AsyncByteStream, AsyncClient, AsyncHTTPTransport, Request, Response, Timeout
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    JSONRPCResponse,
    RequestParamsMeta,
    ResourceLink,
    TextContent,
    TextResourceContents,
    jsonrpc_message_adapter,
)
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from lcp_engine.core.protocol.schema_model import shortened
from lcp_engine.core.summaries import size
from lcp_engine.errors import Code, ErrorCode
from lcp_engine.features.programs.servers.external import MOST_ANSWER
from lcp_engine.features.programs.servers.mcp import LIST_TOOLS, MOST_TOOLS, Bridge, McpTool, ServerTools

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_MOST_PAGES = 100
_MOST_MESSAGE = 2 * MOST_ANSWER
"""Bytes of a message of a server: it has the same both as text and as a value."""


def main(stated: str) -> None:
    """Answer each line of stdin, until it ends or the server does. `stated` is a `Bridge` in JSON."""
    answers = os.dup(1)
    os.dup2(2, 1)  # only answers belong there
    try:
        anyio.run(_serve, Bridge.model_validate_json(stated), answers)
    except BaseException as raised:  # noqa: BLE001 -- whatever it is, a person has to know it
        _end(_told(raised))


async def _serve(bridge: Bridge, answers: int) -> None:
    client_info = Implementation(name="lcp-engine", version=version("lcp-engine"))
    with os.fdopen(answers, "w", encoding="utf-8") as out:
        sieve = _Sieve()
        transport = _sifted(_transport(bridge), sieve)
        async with Client(transport, client_info=client_info, cache=None) as client:
            sieve.version = client.protocol_version
            while line := await anyio.to_thread.run_sync(sys.stdin.readline):
                job: dict[str, JsonValue] = json.loads(line)
                out.write(await _answer(client, sieve, bridge, job))
                out.flush()
            # The block's end would wait for the server, which is ended with this process.
            os._exit(0)


async def _answer(client: Client, sieve: _Sieve, bridge: Bridge, job: dict[str, JsonValue]) -> str:
    """A line for the runner."""
    try:
        tools = await _tools(client, sieve)
        said = _listed(tools) if job["kind"] == LIST_TOOLS else await _call(client, tools, bridge, job)
    except MCPError as error:
        if bridge.url is not None and error.code != INVALID_PARAMS:
            raise  # the session may be over
        said = _error(error.message, ErrorCode.INVALID_PARAMS if error.code == INVALID_PARAMS else None)
    except (RuntimeError, ValidationError) as error:  # how the SDK refuses what a server answers
        said = _error(f"the server's answer is not valid: {_first_line(error)}")
    line = json.dumps({"id": job["id"], **said}) + "\n"
    if len(line) > MOST_ANSWER:
        most = size(MOST_ANSWER)
        said = _error(
            f"the server answered {size(len(line))}; at most {most} is expected", ErrorCode.TOO_LARGE
        )
        return json.dumps({"id": job["id"], **said}) + "\n"
    return line


async def _call(
    client: Client, tools: ServerTools, bridge: Bridge, job: dict[str, JsonValue]
) -> dict[str, JsonValue]:
    """Answer of the tool of the job's kind, if it is still what it was when a person accepted it."""
    accepted = bridge.accepted[str(job["kind"])]
    tool = next((one for one in tools.tools if one.name == accepted.name), None)
    if tool is None and accepted.name in tools.refused:
        fact = f"the server's tool {accepted.name!r} cannot be used any more: {tools.refused[accepted.name]}"
        return _error(f"{fact}; {_UPDATE}", ErrorCode.CONFLICT)
    if tool is None:
        return _error(f"the server has no tool {accepted.name!r} any more; {_UPDATE}", ErrorCode.NOT_FOUND)
    if tool.digest != accepted.digest:
        fact = (
            f"the server says something else of its tool {tool.name!r} than when it was accepted; {_UPDATE}"
        )
        return _error(fact, ErrorCode.CONFLICT)
    params = job["params"] if isinstance(job["params"], dict) else {}
    # A server can tell by them what it has done already.
    once: RequestParamsMeta = {  # type: ignore[typeddict-unknown-key]  # it may have any; mypy does not know extra_items
        "lcp-engine/job": job["id"],
        "lcp-engine/attempt": job["attempt"],
    }
    done = await client.call_tool(tool.name, params, meta=once)
    if done.is_error:
        return _error(_text(done.content) or "the tool failed without a word")
    return {"result": _result(done)}


_UPDATE = "`lcp kinds --update` shows the difference, and accepts it"


def _listed(tools: ServerTools) -> dict[str, JsonValue]:
    return {"result": tools.model_dump(mode="json", by_alias=True, exclude_none=True)}


async def _tools(client: Client, sieve: _Sieve) -> ServerTools:
    """All tools of the server, as far as their number is bounded; those that cannot be called by their name apart."""
    sieve.refused.clear()
    found: list[McpTool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [McpTool.model_validate(tool.model_dump(by_alias=True, mode="json")) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None or len(found) > MOST_TOOLS:
            break
    if cursor is not None or len(found) > MOST_TOOLS:
        raise RuntimeError(f"at most {MOST_TOOLS:,} tools on {_MOST_PAGES} pages are expected")
    info = client.server_info
    names = Counter([*(tool.name for tool in found), *sieve.refused])
    twice = {name: "the server has several tools of this name" for name, count in names.items() if count > 1}
    return ServerTools(
        server="" if info is None else f"{info.name} {info.version}",
        tools=tuple(tool for tool in found if names[tool.name] == 1),
        refused={**sieve.refused, **twice},
    )


class _Sieve:
    """Takes out of a server's lists of tools those that the SDK refuses, which refuses the whole list for one."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Reasons, by the names of the tools that were taken out since this was emptied."""
        self.version = LATEST_HANDSHAKE_VERSION

    def sift(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        """`message`, without tools that are not valid if it lists tools."""
        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
            result = message.message.result
            if isinstance(tools := result.get("tools"), list):
                result["tools"] = [
                    tool for number, tool in enumerate(tools, 1) if self._accepts(tool, number, result)
                ]
        return message

    def _accepts(self, tool: JsonValue, number: int, result: Mapping[str, JsonValue]) -> bool:
        try:
            validate_server_result(LIST_TOOLS, self.version, {**result, "tools": [tool]})
        except ValidationError as error:
            # A fault of the list itself is no tool's.
            faults = [one for one in error.errors(include_url=False) if one["loc"][:2] == ("tools", 0)]
            if faults:
                name = tool.get("name") if isinstance(tool, dict) else None
                known = shortened(name) if isinstance(name, str) else f"number {number}"
                self.refused[known] = _fault_of_tool(faults[0])
            return not faults
        return True


def _fault_of_tool(fault: ErrorDetails) -> str:
    place = ".".join(map(str, fault["loc"][2:]))
    if place.endswith("Schema.type"):
        return f'{place}: "object" is expected'
    return f"{place} is missing" if fault["type"] == "missing" else f"{place or 'the tool'}: {fault['msg']}"


@asynccontextmanager
async def _sifted(transport: Transport, sieve: _Sieve) -> AsyncIterator[TransportStreams]:
    """A transport whose messages go through a sieve."""
    async with transport as (read, write), anyio.create_task_group() as tasks:
        sent, received = anyio.create_memory_object_stream[SessionMessage | Exception]()

        async def pump() -> None:
            async with sent:
                async for message in read:
                    await sent.send(sieve.sift(message))

        tasks.start_soon(pump)
        yield received, write


def _result(done: CallToolResult) -> dict[str, JsonValue]:
    left_out = [said for one in done.content if (said := _left_out(one)) is not None]
    structured: JsonValue = done.structured_content
    return {
        "text": _text(done.content),
        **({} if structured is None else {"structured": structured}),
        **({"left_out": [*left_out]} if left_out else {}),
    }


def _text(content: Sequence[ContentBlock]) -> str:
    return "\n\n".join(text for one in content if (text := _text_of(one)) is not None)


def _text_of(block: ContentBlock) -> str | None:
    match block:
        case TextContent(text=text) | EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case ResourceLink(name=name, uri=uri):
            return f"{name}: {uri}"
        case _:
            return None


def _left_out(block: ContentBlock) -> str | None:
    """Description of a block that has no text."""
    match block:
        case ImageContent(mime_type=mime_type, data=data) | AudioContent(mime_type=mime_type, data=data):
            return f"{mime_type}, {size(len(data) * 3 // 4)}"
        case EmbeddedResource(resource=resource) if not isinstance(resource, TextResourceContents):
            return f"{resource.mime_type or 'bytes'}, {size(len(resource.blob) * 3 // 4)}"
        case _:
            return None


def _error(message: str, code: Code | None = None) -> dict[str, JsonValue]:
    return {"error": {"message": message, "code": str(code or ErrorCode.WORKER_FAILED)}}


def _transport(bridge: Bridge) -> Transport:
    if bridge.url is None:
        return _own_server(bridge.command)
    return _server_elsewhere(bridge.url, None if bridge.token is None else os.environ[bridge.token])


_Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def _own_server(command: Sequence[str]) -> AsyncIterator[_Streams]:
    """A server that this process starts. When it ends, so does this process: it would answer nothing any more.

    The SDK would start it, too, but reads messages of any length, in time that grows with their square.
    """
    process = await anyio.open_process(command, stderr=None, env=os.environ)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    sent, received = anyio.create_memory_object_stream[SessionMessage | Exception]()
    to_send, from_client = anyio.create_memory_object_stream[SessionMessage]()

    async def read() -> None:
        unread = bytearray()
        async for piece in stdout:
            *lines, rest = piece.split(b"\n")
            for line in lines:
                await sent.send(_message(bytes(unread + line)))
                unread.clear()
            unread += rest
            if len(unread) > _MOST_MESSAGE:
                process.kill()
                await process.wait()  # it shares stderr, and would have the last word there
                _end(f"the MCP server sent a message of more than {size(_MOST_MESSAGE)}")
        os._exit(1)  # the last line of stderr is the server's

    async def write() -> None:
        async for message in from_client:
            await stdin.send(
                message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        yield received, to_send


def _message(line: bytes) -> SessionMessage | Exception:
    """A line of a server; the session goes on after one that is not a message."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as refused:
        return refused


def _server_elsewhere(url: str, token: str | None) -> Transport:
    """A server that is reached over HTTP. A redirect to another origin is not followed; the token stays here."""
    headers = {"Accept-Encoding": "identity"}  # what is compressed has any size
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    # The limit of a job's time is the runner's.
    client = AsyncClient(transport=_Bounded(), headers=headers, timeout=Timeout(None))
    return streamable_http_client(url, http_client=client)


class _Bounded(AsyncHTTPTransport):
    """Ends this process at an answer without end. Of an event stream the SDK limits each event."""

    async def handle_async_request(self, request: Request) -> Response:
        response = await super().handle_async_request(request)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            _end("the MCP server sent a compressed answer, which was not asked for")
        if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, AsyncByteStream)
            response.stream = _Counted(response.stream)
        return response


class _Counted(AsyncByteStream):
    def __init__(self, stream: AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for piece in self._stream:
            received += len(piece)
            if received > _MOST_MESSAGE:
                _end(f"the MCP server sent a message of more than {size(_MOST_MESSAGE)}")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _told(raised: BaseException) -> str:
    """The first cause, in a line."""
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    named = "" if isinstance(raised, MCPError) else f"{type(raised).__name__}: "
    return f"the MCP server cannot be used: {named}{_first_line(raised)}"


def _first_line(raised: BaseException) -> str:
    return next(iter(str(raised).splitlines()), "")


def _end(fact: str) -> NoReturn:
    """End this process; the last line of stderr says why."""
    print(f"\n{fact}", file=sys.stderr, flush=True)  # noqa: T201 -- where a runner looks
    os._exit(1)
