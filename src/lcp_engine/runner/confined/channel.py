"""Exchange messages between a runner and a confined process: a head in JSON, a body of bytes."""

from __future__ import annotations

import json
import socket
import struct
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TypeAlias

from pydantic import JsonValue

from lcp_engine.errors import Failed, Json, LcpError
from lcp_engine.feature import find_code

Head: TypeAlias = dict[str, JsonValue]
Buffer: TypeAlias = bytes | bytearray
Message: TypeAlias = tuple[Head, Buffer]
Attempt: TypeAlias = tuple[int, int]
"""A job and which execution of it: what a process may run for."""

MAX_HEAD = 16 * 1024 * 1024
MAX_BODY = 1024 * 1024 * 1024
FORKED = b"."
"""What the fork server answers when it has forked; otherwise it says why not, in at most `MOST_SAID` bytes."""
MOST_SAID = 200
_LENGTHS = struct.Struct("<II")
_FIRST = 64 * 1024
"""Most messages arrive with one call of this size."""
_ENCODE = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_DECODE = json.JSONDecoder().decode


class Duty(StrEnum):
    """Duty of a process: it serves the requests of its duty only."""

    READ = "read"
    """Executes workers; can only read."""
    WRITE = "write"
    """Takes the journal's steps on files; can also write."""
    CHECK = "check"
    """Runs acceptance checks; can only read."""
    RUN = "run"
    """Runs one foreign program, which it confines, and ends."""


class Request(StrEnum):
    """Everything a runner can request, in `do` of a head."""

    WORK = "work"
    """A reader: execute a job."""
    RESULT = "result"
    """A reader: make the result of the effect that the job before returned."""
    LOCK = "lock"
    """A writer: lock files. The requests below it are for the files that are locked, until `RELEASE`."""
    READ = "read"
    READ_WITHIN = "read within"
    DIGEST = "digest"
    PUT = "put"
    PUT_ALL = "put all"
    PREPARE = "prepare"
    IS_PREPARED = "is prepared"
    PUT_PREPARED = "put prepared"
    SET_MODE = "set mode"
    SYNC = "sync"
    CHECK_REMOVABLE = "check removable"
    REMOVE = "remove"
    MEND = "mend"
    RELEASE = "release"
    READ_UNLOCKED = "read unlocked"
    """A writer: read a file without a lock."""
    REMOVE_EMPTY = "remove empty"
    """A writer: remove directories that are empty."""
    CHECK = "check"
    """A checker: run one acceptance check."""
    RUN = "run"
    """A process that runs a program: run it."""


class Answer(StrEnum):
    """Kind of an answer, in `is` of a head."""

    READY = "ready"
    """The process is confined."""
    REFUSED = "refused"
    """The kernel cannot confine the process."""
    DONE = "done"
    FAILED = "failed"
    HOLD = "hold"
    EFFECT = "effect"
    SETUP_NEEDED = "setup needed"
    """The request must be sent again with the setup of the mission."""
    OUT_OF_MEMORY = "out of memory"
    STARTS = "starts"
    """Not the end: the process turns to the file `nth` of a `PUT_ALL`."""
    FILE = "file"
    SIZE = "size"
    NOTHING = "nothing"


class Disconnected(Exception):
    """The other side is gone, or does not keep to the protocol."""


class TimedOut(Exception):
    """The other side did not answer in time."""


class Channel:
    """One end of a connection, used by one thread at a time. Whatever arrives is read as JSON, and never executed."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._seconds = 0.0
        self._ahead = b""
        self.close = weakref.finalize(self, end.close)

    def fileno(self) -> int:
        """The descriptor that becomes readable when a message comes, or the other side is gone."""
        return self._end.fileno()

    def hang_up(self) -> None:
        """Let both sides find the end of the connection, also one that waits for it; any thread may call."""
        with suppress(OSError):  # it is closed, or the other side is gone
            self._end.shutdown(socket.SHUT_RDWR)

    def set_timeout(self, seconds: float) -> None:
        """From now on `send` and `receive` raise `TimedOut` after that; 0 waits for ever."""
        if seconds != self._seconds:
            limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
            self._end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._seconds = seconds

    def send(self, head: Head, body: Buffer = b"") -> None:
        """Raises `Disconnected`, `TimedOut`."""
        start = _start(head, body)
        if len(body) < _FIRST:
            self._send(start + body)
        else:
            self._send(start)
            self._send(body)

    def send_all(self, messages: Iterable[tuple[Head, bytes]]) -> None:
        """Send several at once. The other side may answer the first before it reads the last: keep them small.

        Raises `Disconnected`, `TimedOut`.
        """
        self._send(b"".join(part for head, body in messages for part in (_start(head, body), body)))

    def receive(self) -> Message:
        """The next message. Raises `Disconnected`, `TimedOut`."""
        try:
            first, self._ahead = self._ahead or self._end.recv(_FIRST), b""
            while len(first) < _LENGTHS.size:
                first += self._read(_LENGTHS.size - len(first))
            size, length = _LENGTHS.unpack_from(first)
            if size > MAX_HEAD or length > MAX_BODY:
                raise Disconnected(f"a message of {size} and {length} bytes")
            start = _LENGTHS.size + size
            if len(first) < start:
                first += self._read(start - len(first))
            head: object = _DECODE(first[_LENGTHS.size : start].decode("ascii"))
            if not isinstance(head, dict):
                raise Disconnected("a message without a head")
            end = start + length
            if len(first) < end:
                return head, self._read_rest(memoryview(first)[start:], length)
            self._ahead = first[end:]
            return head, first[start:end]
        except BlockingIOError:
            raise TimedOut from None
        except (OSError, ValueError, RecursionError) as error:
            raise Disconnected(str(error)) from error

    def _send(self, message: Buffer) -> None:
        try:
            self._end.sendall(message)
        except BlockingIOError:
            raise TimedOut from None
        except OSError as error:
            raise Disconnected(str(error)) from error

    def _read_rest(self, begun: memoryview, length: int) -> bytearray:
        whole = bytearray(length)
        whole[: len(begun)] = begun
        self._fill(memoryview(whole)[len(begun) :])
        return whole

    def _read(self, length: int) -> bytes:
        piece = bytearray(length)
        self._fill(memoryview(piece))
        return bytes(piece)

    def _fill(self, room: memoryview) -> None:
        while room:
            got = self._end.recv_into(room)
            if not got:
                raise Disconnected("its process ended")
            room = room[got:]


def text_of(head: Head, key: str) -> str:
    """A text of a head. Raises `Disconnected`."""
    value = head.get(key)
    if not isinstance(value, str):
        raise Disconnected(f"a message without {key!r}")
    return value


def number_of(head: Head, key: str) -> int:
    """A whole number of a head. Raises `Disconnected`."""
    value = head.get(key)
    if not isinstance(value, int):
        raise Disconnected(f"a message without {key!r}")
    return value


def texts_of(head: Head, key: str) -> tuple[str, ...]:
    """The texts of a list in a head."""
    value = head.get(key)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def failure_head(failed: Failed) -> Head:
    """A failure as a head."""
    details: Head = json.loads(json.dumps(failed.details, default=str))
    return {
        "is": Answer.FAILED,
        "code": str(failed.code),
        "message": failed.message,
        "details": details,
        "advice": failed.advice,
    }


def failure_of(head: Head) -> Failed:
    """The failure that `failure_head` made a head of. Raises `Disconnected`."""
    if (code := find_code(text_of(head, "code"))) is None:
        raise Disconnected(f"{head['code']!r} is no error code")
    advice = head.get("advice")
    message = text_of(head, "message")
    return Failed(code, message, _mapping(head.get("details")), None if advice is None else str(advice))


def error_of(head: Head) -> LcpError | None:
    """The failure in a head as an exception; None if it holds none."""
    if head.get("is") != Answer.FAILED:
        return None
    return LcpError.of(failure_of(head))


def _mapping(value: object) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _start(head: Head, body: Buffer) -> bytes:
    text = _ENCODE(head).encode("ascii")
    return _LENGTHS.pack(len(text), len(body)) + text
