"""Read a server's answer into JSON objects, whether it streams events or sends one document (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import JsonValue

from lcp_engine.planners.llm.errors import words_of

JsonObject: TypeAlias = dict[str, JsonValue]
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """The objects of an answer, in order; `is_whole` where nothing can be missing at its end."""

    objects: tuple[JsonObject, ...]
    is_whole: bool


@dataclass(frozen=True)
class Strange:
    """Something that is neither events nor a JSON object: what it is instead."""

    fact: str


def read_answer(chunks: Iterable[bytes]) -> Answer | Strange:
    """The answer that `chunks` make up. It is told from its first bytes: content types are often wrong."""
    lines = _lines(chunks)
    try:
        first = next((line for line in lines if line.strip()), b"").removeprefix(b"\xef\xbb\xbf")
        if first.startswith(_EVENT):
            return _events(_chain(first, lines))
        return _document(b"\n".join(_chain(first, lines)))
    except _TooMuch:
        return Strange(f"more than {MOST_BYTES // 2**20} MiB arrived")


def object_in(value: JsonValue | None) -> Mapping[str, JsonValue]:
    """`value` where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: JsonValue | None) -> list[JsonValue]:
    """`value` where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_in(value: JsonValue | None) -> str:
    """`value` where it is text, or the text of its parts; else nothing."""
    if isinstance(value, list):
        return "".join(text_in(object_in(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""


def count_in(value: JsonValue | None) -> int | None:
    """`value` where it is a number of things, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_EVENT = (b"data:", b"event:", b"id:", b"retry:", b":")


class _TooMuch(Exception):
    """More arrived than anybody wants to read."""


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines end with LF or CRLF alone: JSON may hold the other characters that Unicode takes for a line's end."""
    pending: list[bytes] = []
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > MOST_BYTES:
            raise _TooMuch
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*pending, line)).removesuffix(b"\r")
            pending = []
        pending.append(rest)
    if last := b"".join(pending):
        yield last


def _chain(first: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from lines


def _events(lines: Iterator[bytes]) -> Answer | Strange:
    objects: list[JsonObject] = []
    for data, is_ended in _data(lines):
        if data.strip() == b"[DONE]":
            return Answer(tuple(objects), is_whole=True)
        value = _parse(data)
        if isinstance(value, dict):
            objects.append(value)
        elif is_ended:
            return Strange(f"an event that is no JSON object: {_shown(data)}")
    return Answer(tuple(objects), is_whole=False)


def _data(lines: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The data of each event, and whether the event was ended; the last one may be cut off."""
    data: list[bytes] = []
    for line in lines:
        if not line and data:
            yield b"\n".join(data), True
            data = []
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    if data:
        yield b"\n".join(data), False


def _document(text: bytes) -> Answer | Strange:
    value = _parse(text)
    if isinstance(value, dict):
        return Answer((value,), is_whole=True)
    if text.lstrip().startswith(b"{"):
        return Answer((), is_whole=False)
    return Strange(_shown(text))


def _parse(text: bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _shown(text: bytes) -> str:
    return words_of(text[:20_000].decode("utf-8", "replace"))
