"""Read a server's answer, a stream of events or one document, into JSON objects."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from pydantic import JsonValue

from lcp_engine.planners.llm.errors import words_of

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
