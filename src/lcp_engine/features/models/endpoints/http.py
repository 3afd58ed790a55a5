"""Send requests to a model's server, within a deadline and with its key in no message, and parse the answers."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import time
import weakref
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import JsonValue

from lcp_engine.features.models.endpoints.chat import ModelSettings
from lcp_engine.features.models.endpoints.deadline import Deadline, Line, TooLate, within
from lcp_engine.features.models.endpoints.errors import Again, Scrub, Trouble, trouble_of, words_of

if TYPE_CHECKING:
    import ssl

    import httpx2

SHARE = 4
"""One JSON value may be a quarter of an answer."""
_MOST_ERROR_BYTES = 64 * 1024
JsonObject: TypeAlias = dict[str, JsonValue]
T = TypeVar("T")


@dataclass
class Answer:
    """The objects of an answer, in order, which can be read once: each is parsed when it has arrived."""

    objects: Iterable[JsonObject]
    is_whole: bool = False
    """Whether nothing can be missing at the end; known once the objects have been read."""


class Unreadable(Exception):
    """An answer that is neither a stream of events nor a JSON object, or too large; the text says what came instead."""


_OF_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that state other authorities than those that the system trusts."""


@cache
def _trusted(*stated: str | None) -> ssl.SSLContext:
    """The trusted authorities; with the values of `_OF_TRUST`, if they count.

    Loaded once in a process: it takes longer than everything else that a question costs.
    """
    import httpx2

    return httpx2.create_ssl_context(trust_env=bool(stated))


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
        # A proxy cannot reach the servers of this machine.
        reads_environment = not is_loopback(settings.endpoint)
        self._client = httpx2.Client(
            # Answers are small, and what is not compressed does not grow.
            headers={"User-Agent": "lcp-engine", "Accept-Encoding": "identity", **headers},
            # Each request has a connection of its own, which can be cut at its deadline.
            limits=httpx2.Limits(max_keepalive_connections=0),
            trust_env=reads_environment,
            verify=_trusted(*map(os.environ.get, _OF_TRUST)) if reads_environment else _trusted(),
            transport=transport,
        )
        # Nothing closes a planner: its connections are closed when it is collected.
        weakref.finalize(self, self._client.close)

    def deadline(self, seconds: float) -> Deadline:
        """In so many seconds, by the clock of the exchange."""
        return Deadline.after(seconds, self._clock())

    def post(
        self, path: str, body: Mapping[str, JsonValue], deadline: Deadline, read: Callable[[Answer], T]
    ) -> T | Trouble:
        """Result of `read` for the answer to a POST to `path`."""
        return self._send("POST", path, body, deadline, read)

    def get(self, path: str, deadline: Deadline, read: Callable[[Answer], T]) -> T | Trouble:
        """Like `post`, without a body."""
        return self._send("GET", path, None, deadline, read)

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, JsonValue] | None,
        deadline: Deadline,
        read: Callable[[Answer], T],
    ) -> T | Trouble:
        import httpx2

        seconds = max(deadline.at - self._clock(), 0.001)
        silence = self._settings.first_byte_seconds
        timeout = httpx2.Timeout(silence, connect=min(self._settings.connect_seconds, silence))

        def request(line: Line) -> T | Trouble:
            sent = self._client.stream(
                method, f"{self.where}{path}", json=body, timeout=timeout, extensions={"trace": line.trace}
            )
            with sent as response:
                return self._read(response, deadline, read)

        try:
            return within(seconds, request)
        except TooLate:
            return Trouble(
                f"{self.where}: a whole answer within {round(deadline.seconds, 1):g} s is expected, it took longer"
            )
        except Unreadable as unreadable:
            return Trouble(f"{self.where}: events or a JSON object are expected, this came: {unreadable}")
        except httpx2.ConnectTimeout:
            return self._late(f"a connection within {self._settings.connect_seconds:g} s", "none was made")
        except httpx2.TimeoutException:
            return self._late(f"an answer within {silence:g} s", "nothing came")
        except httpx2.ConnectError as refused:
            fact = f"no connection was made: {self._settings.scrub(str(refused))}"
            message = f"{self.where}: a model's server is expected to listen there, {fact}"
            return Trouble(message, Again.BACK_OFF)
        except (httpx2.HTTPError, httpx2.InvalidURL) as refused:
            fact = f"the connection broke: {self._settings.scrub(str(refused)) or type(refused).__name__}"
            return Trouble(f"{self.where}: a whole answer is expected, {fact}", Again.BACK_OFF)

    def _read(
        self, response: httpx2.Response, deadline: Deadline, read: Callable[[Answer], T]
    ) -> T | Trouble:
        chunks = self._in_time(response, deadline)
        if response.is_success:
            return read(answer_of(chunks, self._settings.max_answer_bytes, self._settings.scrub))
        text = _beginning(chunks).decode("utf-8", "replace")
        scrub, keyless = self._settings.scrub, self._settings.keyless
        status, headers, now = response.status_code, response.headers, time.time()
        return trouble_of(self.where, status, headers, text, scrub, keyless=keyless, now=now)

    def _late(self, expectation: str, fact: str) -> Trouble:
        return Trouble(f"{self.where}: {expectation} is expected, {fact}", Again.ONCE)

    def _in_time(self, response: httpx2.Response, deadline: Deadline) -> Iterator[bytes]:
        """The decoded bytes until the deadline; compressed ones that decode to nothing are counted as they arrive."""
        for chunk in response.iter_bytes():
            if self._clock() > deadline.at:
                raise TooLate
            if response.num_bytes_downloaded > self._settings.max_answer_bytes:
                raise Unreadable(_more_than(self._settings.max_answer_bytes))
            yield chunk


def is_loopback(endpoint: str) -> bool:
    """True if the endpoint is on this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # Not "*.localhost": resolvers may ask the network for such a name.
        return host == "localhost"


def answer_of(chunks: Iterable[bytes], most_bytes: int, scrub: Scrub) -> Answer:
    """The answer that `chunks` make up, recognised by its first bytes: content types are often wrong.

    It may have `most_bytes`, one JSON value in it a quarter of them: parsed, it takes about 25 times that in memory.
    Reading its objects raises `Unreadable`.
    """
    answer = Answer(())
    answer.objects = _objects(answer, chunks, most_bytes, scrub)
    return answer


def heard(answer: Answer, words: Callable[[JsonObject], str], hear: Callable[[str], object]) -> Answer:
    """The answer itself; `hear` is called with the `words` of each object when it has arrived."""

    def told(objects: Iterable[JsonObject]) -> Iterator[JsonObject]:
        for part in objects:
            if said := words(part):
                hear(said)
            yield part

    answer.objects = told(answer.objects)
    return answer


def object_in(value: JsonValue | None) -> Mapping[str, JsonValue]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: JsonValue | None) -> list[JsonValue]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_in(value: JsonValue | None) -> str:
    """`value` if it is text, or the text of its parts; else an empty one. A part of another type may be a thought."""
    if isinstance(value, list):
        parts = (object_in(part) for part in value)
        return "".join(text_in(part.get("text")) for part in parts if part.get("type") in _OF_TEXT)
    return value if isinstance(value, str) else ""


_OF_TEXT = (None, "text", "output_text")


def count_in(value: JsonValue | None) -> int | None:
    """`value` if it is a count, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


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


class _Body:
    """The bytes of an answer without its blank first lines; `is_stream` if they begin like a field of an event."""

    def __init__(self, chunks: Iterable[bytes], most_bytes: int) -> None:
        bounded = _bounded(chunks, most_bytes)
        begun = b""
        for chunk in bounded:
            begun = _BLANK_LINES.sub(b"", begun + chunk)
            if len(begun.strip()) >= len(_BOM + b"event:") or len(begun) > _MOST_ERROR_BYTES:
                break
        begun = begun.removeprefix(_BOM)
        self.is_stream = bool(_FIELD.match(begun))
        self.chunks = chain((begun,), bounded)


def _bounded(chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > most_bytes:
            raise Unreadable(_more_than(most_bytes))
        yield chunk


def _more_than(most_bytes: int) -> str:
    return f"more than {most_bytes:,} bytes (planner.max_answer_bytes raises the limit)"


def _objects(answer: Answer, chunks: Iterable[bytes], most_bytes: int, scrub: Scrub) -> Iterator[JsonObject]:
    body = _Body(chunks, most_bytes)
    yield from (_events if body.is_stream else _document)(answer, body, most_bytes, scrub)


def _events(answer: Answer, body: _Body, most_bytes: int, scrub: Scrub) -> Iterator[JsonObject]:
    import httpx2  # slow to import

    stream = _Utf8Stream(body.chunks)
    response = httpx2.Response(
        200,
        headers={"Content-Type": "text/event-stream; charset=utf-8"},
        content=stream,
        request=httpx2.Request("GET", "http://localhost"),
    )
    try:
        for event in httpx2.EventSource(response, max_event_size=most_bytes // SHARE):
            if event.data.strip() == "[DONE]":
                answer.is_whole = True
                return
            value = _parse(event.data)
            if isinstance(value, dict):
                yield value
            elif event.data and not stream.has_ended:
                raise Unreadable(
                    f"an event that is not a JSON object: {words_of(event.data[:20_000], scrub)}"
                )
    except UnicodeDecodeError:
        raise Unreadable("an event that is not UTF-8") from None
    except httpx2.SSEError:
        raise Unreadable(f"an event of {_more_than(most_bytes // SHARE)}") from None


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


def _document(answer: Answer, body: _Body, most_bytes: int, scrub: Scrub) -> Iterator[JsonObject]:
    whole = b"".join(_bounded(body.chunks, most_bytes // SHARE))
    value = _parse(whole)
    answer.is_whole = isinstance(value, dict)
    if isinstance(value, dict):
        yield value
    elif not whole.lstrip().startswith(b"{"):
        raise Unreadable(words_of(whole[:20_000].decode("utf-8", "replace"), scrub))


def _parse(text: str | bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
