"""Exchange messages between a runner and a confined process: a head in JSON, a body of bytes."""

from __future__ import annotations

import json
import socket
import struct
import weakref
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pydantic import JsonValue

from lcp_engine.errors import ErrorCode, Failed, Json, LcpError

Head: TypeAlias = "dict[str, JsonValue]"
Buffer: TypeAlias = "bytes | bytearray"
MAX_HEAD = 16 * 1024 * 1024
MAX_BODY = 1024 * 1024 * 1024
_LENGTHS = struct.Struct("<II")
_FIRST = 64 * 1024
"""Most messages come with one call of this size."""
_ENDED = "its process ended"
_ENCODE = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_DECODE = json.JSONDecoder().decode


class Broken(Exception):
    """The other side is gone, or speaks another language."""


class Late(Exception):
    """The other side did not answer in time."""


class Line:
    """One end of a connection, used by one thread at a time. Whatever arrives is read as JSON, and never executed."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._seconds = 0.0
        self._ahead = b""
        self.close = weakref.finalize(self, end.close)

    def wait_at_most(self, seconds: float) -> None:
        """From now on `send` and `receive` raise `Late` after that; 0 waits for ever."""
        if seconds != self._seconds:
            limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
            self._end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._seconds = seconds

    def send(self, head: Head, body: Buffer = b"") -> None:
        """Raises `Broken`, `Late`."""
        start = _start(head, body)
        if len(body) < _FIRST:
            self._send(start + body)
        else:
            self._send(start)
            self._send(body)

    def send_all(self, messages: Iterable[tuple[Head, bytes]]) -> None:
        """Send several at once. The other side may answer the first before it reads the last: keep them small.

        Raises `Broken`, `Late`.
        """
        self._send(b"".join(part for head, body in messages for part in (_start(head, body), body)))

    def receive(self) -> tuple[Head, Buffer]:
        """The next message. Raises `Broken`, `Late`."""
        try:
            first, self._ahead = self._ahead or self._end.recv(_FIRST), b""
            while len(first) < _LENGTHS.size:
                first += self._more(_LENGTHS.size - len(first))
            size, length = _LENGTHS.unpack_from(first)
            if size > MAX_HEAD or length > MAX_BODY:
                raise Broken(f"a message of {size} and {length} bytes")
            start = _LENGTHS.size + size
            if len(first) < start:
                first += self._more(start - len(first))
            head: object = _DECODE(first[_LENGTHS.size : start].decode("ascii"))
            if not isinstance(head, dict):
                raise Broken("a message without a head")
            end = start + length
            if len(first) < end:
                return head, self._rest(memoryview(first)[start:], length)
            self._ahead = first[end:]
            return head, first[start:end]
        except BlockingIOError:
            raise Late from None
        except (OSError, ValueError, RecursionError) as error:
            raise Broken(str(error)) from error

    def _send(self, message: Buffer) -> None:
        try:
            self._end.sendall(message)
        except BlockingIOError:
            raise Late from None
        except OSError as error:
            raise Broken(str(error)) from error

    def _rest(self, begun: memoryview, length: int) -> bytearray:
        whole = bytearray(length)
        whole[: len(begun)] = begun
        self._fill(memoryview(whole)[len(begun) :])
        return whole

    def _more(self, length: int) -> bytes:
        piece = bytearray(length)
        self._fill(memoryview(piece))
        return bytes(piece)

    def _fill(self, room: memoryview) -> None:
        while room:
            got = self._end.recv_into(room)
            if not got:
                raise Broken(_ENDED)
            room = room[got:]


def _start(head: Head, body: Buffer) -> bytes:
    text = _ENCODE(head).encode("ascii")
    return _LENGTHS.pack(len(text), len(body)) + text


def text_of(head: Head, key: str) -> str:
    """A text of a head. Raises `Broken`."""
    value = head.get(key)
    if not isinstance(value, str):
        raise Broken(f"a message without {key!r}")
    return value


def number_of(head: Head, key: str) -> int:
    """A whole number of a head. Raises `Broken`."""
    value = head.get(key)
    if not isinstance(value, int):
        raise Broken(f"a message without {key!r}")
    return value


def told(failed: Failed) -> Head:
    """A failure as a head."""
    return {"is": "failed", "code": failed.code.value, "message": failed.message, "details": _plain(failed)}


def failed_of(head: Head) -> Failed:
    """The failure that `told` made a head of. Raises `Broken`."""
    details: Mapping[str, Json] | None = _mapping(head.get("details"))
    try:
        code = ErrorCode(text_of(head, "code"))
    except ValueError as error:
        raise Broken(str(error)) from error
    return Failed(code, text_of(head, "message"), details or {})


def raise_failed(head: Head) -> None:
    """Raises the `LcpError` that a head tells of, if it does."""
    if head.get("is") == "failed":
        failed = failed_of(head)
        raise LcpError(failed.code, failed.message, failed.details)


def _mapping(value: object) -> Mapping[str, Json] | None:
    return value if isinstance(value, dict) else None


def _plain(failed: Failed) -> Head:
    plain: Head = json.loads(json.dumps(failed.details, default=str))
    return plain
