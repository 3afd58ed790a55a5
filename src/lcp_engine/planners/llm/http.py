"""Send requests to a model's server, within a deadline and with its key in no message, and parse the answers."""

from __future__ import annotations

import ipaddress
import json
import re
import time
import weakref
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from pydantic import JsonValue

from lcp_engine.planners.llm.chat import ModelSettings
from lcp_engine.planners.llm.errors import Again, Trouble, trouble_of, words_of

if TYPE_CHECKING:
    import httpx2

_MOST_ERROR_BYTES = 64 * 1024
JsonObject: TypeAlias = dict[str, JsonValue]
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """The objects of an answer, in order; `is_whole` if nothing can be missing at its end."""

    objects: tuple[JsonObject, ...]
    is_whole: bool


@dataclass(frozen=True)
class Unreadable:
    """An answer that is neither a stream of events nor a JSON object; `fact` says what came instead."""

    fact: str


class Exchange:
    """Sends requests to one endpoint; usable from any thread. Tests give a `transport` instead of the network."""

    def __init__(
        self,
        settings: ModelSettings,
        headers: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        import httpx2

        self.where = settings.endpoint
        self._settings = settings
        self._clock = clock
        self._client = httpx2.Client(
            headers={"User-Agent": "lcp-engine", **headers},
            # A proxy cannot reach the servers of this machine.
            trust_env=not is_loopback(settings.endpoint),
            transport=transport,
        )
        # Nothing closes a planner: its connections are closed when it is collected.
        weakref.finalize(self, self._client.close)

    def post(self, path: str, body: Mapping[str, JsonValue], deadline: float) -> Answer | Trouble:
        """The answer to a POST to `path`; `deadline` is a time of the monotonic clock."""
        return self._send("POST", path, body, deadline)

    def get(self, path: str, deadline: float) -> Answer | Trouble:
        """Like `post`, without a body."""
        return self._send("GET", path, None, deadline)

    def _send(
        self, method: str, path: str, body: Mapping[str, JsonValue] | None, deadline: float
    ) -> Answer | Trouble:
        import httpx2

        silence = min(self._settings.first_byte_seconds, max(deadline - self._clock(), 0.001))
        timeout = httpx2.Timeout(silence, connect=min(self._settings.connect_seconds, silence))
        try:
            with self._client.stream(method, f"{self.where}{path}", json=body, timeout=timeout) as response:
                chunks = self._in_time(response.iter_bytes(), deadline)
                if response.is_success:
                    return self._accept(read_answer(chunks))
                text = _beginning(chunks).decode("utf-8", "replace")
                return trouble_of(
                    self.where, response.status_code, response.headers, self._settings.scrub(text)
                )
        except _TooLate:
            expectation = f"a whole completion within {self._settings.total_seconds:g} s is expected"
            return Trouble(f"{self.where}: {expectation}, it took longer")
        except httpx2.ConnectTimeout:
            return self._late(f"a connection within {self._settings.connect_seconds:g} s", "none was made")
        except httpx2.TimeoutException:
            return self._late(f"an answer within {silence:g} s", "nothing came")
        except httpx2.ConnectError as refused:
            fact = f"no connection was made: {self._settings.scrub(str(refused))}"
            return Trouble(
                f"{self.where}: a model's server is expected to listen there, {fact}", Again.BACK_OFF
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as refused:
            fact = f"the connection broke: {self._settings.scrub(str(refused)) or type(refused).__name__}"
            return Trouble(f"{self.where}: a whole answer is expected, {fact}", Again.BACK_OFF)

    def _accept(self, answer: Answer | Unreadable) -> Answer | Trouble:
        if isinstance(answer, Answer):
            return answer
        fact = f"this came: {self._settings.scrub(answer.fact)}"
        return Trouble(f"{self.where}: events or a JSON object are expected, {fact}")

    def _late(self, expectation: str, fact: str) -> Trouble:
        return Trouble(f"{self.where}: {expectation} is expected, {fact}", Again.ONCE)

    def _in_time(self, chunks: Iterator[bytes], deadline: float) -> Iterator[bytes]:
        """`chunks` until the deadline: a server that sends a byte now and then never causes a timeout."""
        for chunk in chunks:
            if self._clock() > deadline:
                raise _TooLate
            yield chunk


def is_loopback(endpoint: str) -> bool:
    """Whether the endpoint is on this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def read_answer(chunks: Iterable[bytes]) -> Answer | Unreadable:
    """The answer that `chunks` make up, recognised by its first bytes: content types are often wrong."""
    body = _Body(chunks)
    try:
        return _read_events(body) if body.is_stream else _read_document(b"".join(body.chunks))
    except _TooLargeError:
        return Unreadable(f"more than {MOST_BYTES // 2**20} MiB arrived")
    except UnicodeDecodeError:
        return Unreadable("an event that is not UTF-8")


def object_in(value: JsonValue | None) -> Mapping[str, JsonValue]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: JsonValue | None) -> list[JsonValue]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_in(value: JsonValue | None) -> str:
    """`value` if it is text, or the text of its parts; else an empty one."""
    if isinstance(value, list):
        return "".join(text_in(object_in(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""


def count_in(value: JsonValue | None) -> int | None:
    """`value` if it is a count, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class _TooLate(Exception):
    """The deadline of the whole answer has passed."""


def _beginning(chunks: Iterator[bytes]) -> bytes:
    text = b""
    for chunk in chunks:
        text += chunk
        if len(text) > _MOST_ERROR_BYTES:
            break
    return text[:_MOST_ERROR_BYTES]


_BLANK_LINES = re.compile(rb"\A(?:[ \t]*\r?\n)+")
_BOM = b"\xef\xbb\xbf"
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")


class _TooLargeError(Exception):
    """More than `MOST_BYTES` arrived."""


class _Body:
    """The bytes of an answer without its blank first lines; `is_stream` if they begin like a field of an event."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        bounded = _bounded(chunks)
        begun = b""
        for chunk in bounded:
            begun = _BLANK_LINES.sub(b"", begun + chunk)
            if len(begun.strip()) >= len(_BOM + b"event:"):
                break
        begun = begun.removeprefix(_BOM)
        self.is_stream = bool(_FIELD.match(begun))
        self.chunks = chain((begun,), bounded)


def _bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > MOST_BYTES:
            raise _TooLargeError
        yield chunk


def _read_events(body: _Body) -> Answer | Unreadable:
    import httpx2  # slow to import

    objects: list[JsonObject] = []
    stream = _Utf8Stream(body.chunks)
    response = httpx2.Response(
        200,
        headers={"Content-Type": "text/event-stream; charset=utf-8"},
        content=stream,
        request=httpx2.Request("GET", "http://localhost"),
    )
    # `_bounded` limits the whole answer, and a reply may well be one event.
    for event in httpx2.EventSource(response, max_event_size=None):
        if event.data.strip() == "[DONE]":
            return Answer(tuple(objects), is_whole=True)
        value = _parse(event.data)
        if isinstance(value, dict):
            objects.append(value)
        elif event.data and not stream.has_ended:
            return Unreadable(f"an event that is not a JSON object: {words_of(event.data[:20_000])}")
    return Answer(tuple(objects), is_whole=False)


class _Utf8Stream:
    """Checked chunks, and a blank line behind them: an event that lacks its own is read, but may be cut off."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.has_ended = False

    def __iter__(self) -> Iterator[bytes]:
        decoder = getincrementaldecoder("utf-8")()
        for chunk in self._chunks:
            decoder.decode(chunk)
            yield chunk
        self.has_ended = True
        yield b"\n\n"


def _read_document(body: bytes) -> Answer | Unreadable:
    value = _parse(body)
    if isinstance(value, dict):
        return Answer((value,), is_whole=True)
    if body.lstrip().startswith(b"{"):
        return Answer((), is_whole=False)
    return Unreadable(words_of(body[:20_000].decode("utf-8", "replace")))


def _parse(text: str | bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
