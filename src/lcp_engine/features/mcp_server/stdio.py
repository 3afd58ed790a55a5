"""Speak MCP over stdin and stdout: messages of bounded length and number, and a stop at any moment.

The SDK's own transport reads messages of any length, in a thread that nothing can stop, and starts any number of
requests.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import BinaryIO, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCRequest, RequestId, jsonrpc_message_adapter
from pydantic import ValidationError

from lcp_engine.cli.json_rpc import INVALID_REQUEST, Stdio, refusal
from lcp_engine.features.mcp_server.clients import Served

MOST_BYTES = 4 * 1024 * 1024
"""Of one message, like those of the SDK over HTTP."""
MOST_REQUESTS = 32
"""Requests under way at a time."""
LAST_SECONDS = 1.0
"""For so long requests are answered after the client has closed its end."""
_POLL_SECONDS = 0.02

_ToServer: TypeAlias = SessionMessage | Exception


class StdioServer:
    """Serves one client over the streams of `protocol_streams`, until it closes its end or `stop` is called."""

    def __init__(self, server: Server[Served], source: BinaryIO, sink: BinaryIO) -> None:
        self._server = server
        self._streams = source, sink
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: Stdio | None = None
        self._is_stopped = False

    def run(self) -> None:
        anyio.run(self._serve)

    def stop(self) -> None:
        """End `run`. May be called from any thread and from a signal handler."""
        self._is_stopped = True
        if self._loop is not None and self._transport is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._transport.end)

    async def _serve(self) -> None:
        transport = self._transport = Stdio(*self._streams, MOST_BYTES, MOST_REQUESTS)
        self._loop = asyncio.get_running_loop()
        if self._is_stopped:
            transport.end()
        to_server, for_server = anyio.create_memory_object_stream[_ToServer](0)
        from_server, answers = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await transport.wait_ended()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            tasks.start_soon(_read, transport, to_server)
            tasks.start_soon(_write, transport, answers)
            await self._server.run(for_server, from_server, self._server.create_initialization_options())
            tasks.cancel_scope.cancel()
        transport.end()


async def _read(transport: Stdio, to_server: MemoryObjectSendStream[_ToServer]) -> None:
    async with to_server:
        with suppress(anyio.BrokenResourceError):  # the server has ended
            while (message := await transport.receive()) is not None:
                try:
                    heard = jsonrpc_message_adapter.validate_python(message, by_name=False)
                except ValidationError:
                    await transport.send(refusal(message, INVALID_REQUEST, "a message is not JSON-RPC 2.0"))
                    continue
                metadata = None
                if isinstance(heard, JSONRPCRequest):
                    settle = partial(_settle, transport, heard.id)
                    metadata = ServerMessageMetadata(on_request_unanswered=settle)
                elif "method" in message:  # what nobody answers
                    transport.under_way.discard(message.get("id"))
                await to_server.send(SessionMessage(heard, metadata))
        with anyio.move_on_after(LAST_SECONDS):  # what was asked before the end of stdin is answered
            while transport.under_way:  # noqa: ASYNC110  # for a second, at the end of the process
                await anyio.sleep(_POLL_SECONDS)


async def _settle(transport: Stdio, number: RequestId) -> None:
    transport.under_way.discard(number)


async def _write(transport: Stdio, answers: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with answers:
        async for answer in answers:
            await transport.send(answer.message.model_dump(mode="json", by_alias=True, exclude_unset=True))
