"""Speak MCP over stdin and stdout: messages of bounded length and number, and a stop at any moment.

The SDK's own transport reads messages of any length, in a thread that nothing can stop, and starts any number of
requests.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import PIPE_BUF
from typing import TypeAlias

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from lcp_engine.features.mcp_server.clients import Served

MOST_BYTES = 4 * 1024 * 1024
"""Of one message, like those of the SDK over HTTP."""
MOST_REQUESTS = 32
"""Requests under way at a time."""
BUSY = -32_000
LAST_SECONDS = 1.0
"""For so long requests are answered after the client has closed its end."""
_POLL_SECONDS = 0.02

_ToServer: TypeAlias = SessionMessage | Exception


class StdioServer:
    """Serves one client over the descriptors of `protocol_streams`, until it closes its end or `stop` is called."""

    def __init__(self, server: Server[Served], source: int, sink: int) -> None:
        self._server = server
        self._source, self._sink = source, sink
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._under_way = set[RequestId]()
        self._is_speaking = anyio.Lock()

    def run(self) -> None:
        anyio.run(self._serve)

    def stop(self) -> None:
        """End `run`. May be called from any thread and from a signal handler."""
        if self._loop is None:
            self._stopping.set()
            return
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        to_server, for_server = anyio.create_memory_object_stream[_ToServer](0)
        from_server, answers = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await self._stopping.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            tasks.start_soon(self._read, to_server)
            tasks.start_soon(self._write, answers)
            await self._server.run(for_server, from_server, self._server.create_initialization_options())
            tasks.cancel_scope.cancel()

    async def _read(self, to_server: MemoryObjectSendStream[_ToServer]) -> None:
        async with to_server:
            with suppress(anyio.BrokenResourceError):  # the server has ended
                await self._read_messages(to_server)
            with anyio.move_on_after(LAST_SECONDS):  # what was asked before the end of stdin is answered
                while self._under_way:  # noqa: ASYNC110  # for a second, at the end of the process
                    await anyio.sleep(_POLL_SECONDS)

    async def _read_messages(self, to_server: MemoryObjectSendStream[_ToServer]) -> None:
        line, is_too_long = bytearray(), False
        while data := await _read_some(self._source):
            *ends, rest = data.split(b"\n")
            for part in ends:
                if is_too_long or len(line) + len(part) > MOST_BYTES:
                    await self._refuse(
                        None, INVALID_REQUEST, f"a message is longer than {MOST_BYTES:,} bytes"
                    )
                elif text := bytes(line + part).strip():
                    await self._hear(text, to_server)
                line, is_too_long = bytearray(), False
            if is_too_long := is_too_long or len(line) + len(rest) > MOST_BYTES:
                line.clear()
            else:
                line += rest

    async def _hear(self, text: bytes, to_server: MemoryObjectSendStream[_ToServer]) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValidationError as refused:
            is_json = refused.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid"
            code, fact = (INVALID_REQUEST, "JSON-RPC 2.0") if is_json else (PARSE_ERROR, "JSON")
            await self._refuse(None, code, f"a message is not {fact}")
            return
        if not isinstance(message, JSONRPCRequest):
            await to_server.send(SessionMessage(message))
            return
        number = message.id
        if number in self._under_way:
            await self._refuse(number, INVALID_REQUEST, "a request with this id is under way")
        elif len(self._under_way) >= MOST_REQUESTS:
            await self._refuse(number, BUSY, f"{MOST_REQUESTS} requests are under way; wait for an answer")
        else:
            self._under_way.add(number)

            async def settle() -> None:
                self._under_way.discard(number)

            await to_server.send(SessionMessage(message, ServerMessageMetadata(on_request_unanswered=settle)))

    async def _write(self, answers: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with answers:
            async for answer in answers:
                message = answer.message
                await self._say(message.model_dump_json(by_alias=True, exclude_unset=True))
                if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                    self._under_way.discard(message.id)

    async def _refuse(self, number: RequestId | None, code: int, message: str) -> None:
        error = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
        await self._say(json.dumps(error))

    async def _say(self, text: str) -> None:
        data = f"{text}\n".encode()
        async with self._is_speaking:
            try:
                for begin in range(0, len(data), PIPE_BUF):
                    await _write_some(self._sink, data[begin : begin + PIPE_BUF])
            except BrokenPipeError:  # nobody reads any more
                self._stopping.set()


async def _read_some(source: int) -> bytes:
    try:
        await anyio.wait_readable(source)
    except PermissionError:  # a file, which never lets anyone wait
        await anyio.lowlevel.checkpoint()
    try:
        return os.read(source, 65_536)
    except ConnectionError:
        return b""


async def _write_some(sink: int, data: bytes) -> None:
    """Write at most PIPE_BUF bytes, which a pipe that is ready takes without blocking."""
    while data:
        try:
            await anyio.wait_writable(sink)
        except PermissionError:
            await anyio.lowlevel.checkpoint()
        data = data[os.write(sink, data) :]


@contextmanager
def protocol_streams() -> Iterator[tuple[int, int]]:
    """Duplicates of stdin and stdout, which are /dev/null and stderr meanwhile: what workers print is no message."""
    source, sink, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for one in (source, sink, nothing):
            os.close(one)
