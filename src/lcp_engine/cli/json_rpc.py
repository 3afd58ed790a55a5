"""Carry messages of JSON-RPC between two streams, one on each line; bad input is refused in words."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, redirect_stdout, suppress
from typing import BinaryIO, TypeAlias

from lcp_engine.core.json_values import JsonObject, JsonValue

MOST_BYTES = 16 * 1024 * 1024
"""The largest message, unless a connection states another one."""
MOST_REQUESTS = 64
"""Requests that are being answered at the same time, likewise."""
PARSE_ERROR, INVALID_REQUEST, OVERLOADED = -32700, -32600, -32000
_Line: TypeAlias = bytes | None
_Sent: TypeAlias = tuple[bytes, asyncio.Future[None]]
_Fault: TypeAlias = tuple[int, str]


class Stdio:
    """The transport of a connection. It ends when either stream does, or with `end`.

    Both streams have a thread, since a file may be neither a pipe nor a socket. A message that was sent is in the
    stream: who sends more than the other side reads waits.
    """

    def __init__(
        self, source: BinaryIO, sink: BinaryIO, most_bytes: int = MOST_BYTES, most_requests: int = MOST_REQUESTS
    ) -> None:  # fmt: skip
        self._most_bytes, self._most_requests = most_bytes, most_requests
        self._loop = asyncio.get_running_loop()
        self._incoming: asyncio.Queue[_Line] = asyncio.Queue(1)
        self._outgoing: queue.SimpleQueue[_Sent | None] = queue.SimpleQueue()
        self.under_way = set[JsonValue]()
        """Ids of requests that are being answered."""
        self._ended = asyncio.Event()
        for run, stream in ((self._read, source), (self._write, sink)):
            threading.Thread(target=run, args=(stream,), name="lcp-rpc", daemon=True).start()

    async def receive(self) -> JsonObject | None:
        """The next message; None at the end. What is no message is answered with an error."""
        while True:
            await asyncio.sleep(0)  # what came before may run, however much the other side sends
            line = await self._next_line()
            if line is None:
                return None
            if line.isspace():
                continue
            message, fault = _message_in(line, self._most_bytes)
            if fault is None and "method" in message and "id" in message:
                fault = self._admit(message["id"])
            if fault is None:
                return message
            await self._put(refusal(message, *fault))

    def _admit(self, id_: JsonValue) -> _Fault | None:
        if id_ in self.under_way:
            return INVALID_REQUEST, "a request with this id is being answered"
        if len(self.under_way) >= self._most_requests:
            return OVERLOADED, f"{self._most_requests} requests are being answered; send fewer at once"
        self.under_way.add(id_)
        return None

    async def send(self, message: JsonObject) -> None:
        """Send a message; it is dropped if the other side has gone, which ends the connection."""
        if "method" not in message:
            self.under_way.discard(message.get("id"))
        await self._put(message)

    async def close(self) -> None:
        """End the connection."""
        self.end()

    def end(self) -> None:
        """Let `receive` return None, and send no more."""
        if not self._ended.is_set():
            self._ended.set()
            self._outgoing.put(None)

    async def wait_ended(self) -> None:
        """Wait for `end`, by whoever calls it, or for the other side to read no more."""
        await self._ended.wait()

    async def _put(self, message: JsonObject) -> None:
        if not self._ended.is_set():
            sent: asyncio.Future[None] = self._loop.create_future()
            self._outgoing.put((f"{json.dumps(message, default=str)}\n".encode(), sent))
            await sent

    async def _next_line(self) -> _Line:
        line, ended = asyncio.ensure_future(self._incoming.get()), asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((line, ended), return_when=asyncio.FIRST_COMPLETED)
            return line.result() if line.done() and not ended.done() else None
        finally:
            line.cancel()
            ended.cancel()

    def _read(self, source: BinaryIO) -> None:
        # The loop has ended, or what is read was closed.
        with suppress(OSError, ValueError, RuntimeError, CancelledError):
            while line := source.readline(self._most_bytes + 1):
                rest = line
                while not rest.endswith(b"\n") and (rest := source.readline(self._most_bytes)):
                    pass
                self._bring(line)
            self._bring(None)

    def _bring(self, line: _Line) -> None:
        put = self._incoming.put(line)
        try:
            asyncio.run_coroutine_threadsafe(put, self._loop).result()
        finally:
            put.close()  # the loop may have ended before it took it

    def _write(self, sink: BinaryIO) -> None:
        with suppress(RuntimeError):  # the loop has ended
            while (item := self._outgoing.get()) is not None:
                line, sent = item
                try:
                    while line:
                        line = line[sink.write(line) :]
                    sink.flush()
                except (OSError, ValueError):
                    self._loop.call_soon_threadsafe(self.end)
                self._loop.call_soon_threadsafe(_settle, sent)


@contextmanager
def protocol_streams() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Stdin and stdout for messages alone: meanwhile they are /dev/null and stderr for whatever else reads or prints.

    Their descriptors stay open: a thread may still read from one.
    """
    source, sink, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield os.fdopen(source, "rb", closefd=False), os.fdopen(sink, "wb", buffering=0, closefd=False)
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        os.close(nothing)


def _settle(sent: asyncio.Future[None]) -> None:
    if not sent.done():
        sent.set_result(None)


def refusal(message: JsonObject, code: int, words: str) -> JsonObject:
    """The answer to a message that is refused."""
    return {"jsonrpc": "2.0", "id": _id_in(message), "error": {"code": code, "message": words}}


def _message_in(line: bytes, most_bytes: int) -> tuple[JsonObject, _Fault | None]:
    """A message, and what is wrong with it."""
    if len(line.removesuffix(b"\n")) > most_bytes:
        return {}, (INVALID_REQUEST, f"a message has at most {most_bytes:,} bytes")
    try:
        message: JsonValue = json.loads(line)
    except RecursionError:
        return {}, (PARSE_ERROR, "the line is nested too deeply")
    except ValueError as refused:
        return {}, (PARSE_ERROR, f"the line is not JSON: {refused}")
    if not isinstance(message, dict):
        return {}, (INVALID_REQUEST, "a message is a JSON object; batches are not taken")
    if "method" in message and not isinstance(message["method"], str):
        return message, (INVALID_REQUEST, "method is not a text")
    if "id" in message and _id_in(message) != message["id"]:
        return message, (INVALID_REQUEST, "id is neither a text nor an integer")
    if "method" not in message and "id" not in message:
        return message, (INVALID_REQUEST, "the message has neither a method nor an id")
    return message, None


def _id_in(message: JsonObject) -> JsonValue:
    stated = message.get("id")
    return stated if isinstance(stated, str | int) and not isinstance(stated, bool) else None
