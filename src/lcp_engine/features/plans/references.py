"""References in the params of a step to what steps before it gave: `$output.step-001.files[0]`. Pure.

A param that is a reference alone becomes the value, of whatever type; within a longer text the value is inserted as
text. `$$output.` stands for `$output.`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.safe_text import json_line, shortened

Place: TypeAlias = tuple[str | int, ...]
MOST_INSERTED = 1_000_000
"""Characters that the references of one step may insert."""
FORM = "$output.step-001.key[0]"
NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
STEP = rf"(?:step-[0-9]{{3,6}}(?![0-9])|{NAME}(?![A-Za-z0-9_-]))"
"""The id of a step where it is referred to; text that follows `step-` and digits is none of it."""
PATH = r"(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]{1,9}\])*"
_FOUND = re.compile(rf"\$\$output\.|\$output\.({STEP})({PATH})|\$output\.")
_PART = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]")


class Reference(NamedTuple):
    """A reference as it is written, the step that it is about, and the path within that step's result."""

    text: str
    step: str
    path: Place


class Misspelt(NamedTuple):
    """A text that begins like a reference and is none."""

    text: str


class Missing(ValueError):
    """What a reference is about is not there; the message says how far its path leads."""


class TooLong(ValueError):
    """The references of a step insert more than `MOST_INSERTED` characters."""


def references_in(value: JsonValue, place: Place = ()) -> Iterator[tuple[Place, Reference | Misspelt]]:
    """Every reference in `value`, with its place."""
    if isinstance(value, str):
        for found in _FOUND.finditer(value) if "$output." in value else ():
            if found[1]:
                yield place, _reference(found)
            elif found[0] == "$output.":
                yield place, Misspelt(shortened(value[found.start() :], 40))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from references_in(item, (*place, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from references_in(item, (*place, key))


def path_of(text: str) -> Place:
    """The parts of `.files[0]`."""
    return tuple(int(index) if index else name for name, index in _PART.findall(text))


def resolve(value: JsonValue, results: Mapping[str, JsonValue]) -> JsonValue:
    """`value` with every reference replaced; `results` by step. Raises `Missing` and `TooLong`."""
    left = MOST_INSERTED

    def inserted(reference: Reference) -> JsonValue:
        nonlocal left
        found = _look_up(reference, results)
        left -= len(found) if isinstance(found, str) else _size(found, left)
        if left < 0:
            raise TooLong(
                f"{reference.text} inserts too much: the references of a step may insert {MOST_INSERTED:,} characters"
            )
        return found

    return _replace(value, inserted)


def _replace(value: JsonValue, inserted: Callable[[Reference], JsonValue]) -> JsonValue:
    if isinstance(value, list):
        return [_replace(item, inserted) for item in value]
    if isinstance(value, dict):
        return {key: _replace(item, inserted) for key, item in value.items()}
    if not isinstance(value, str) or "$output." not in value:
        return value
    whole = _FOUND.fullmatch(value)
    if whole is not None and whole[1]:
        return inserted(_reference(whole))

    def as_text(found: re.Match[str]) -> str:
        if not found[1]:
            return "$output."
        there = inserted(_reference(found))
        return there if isinstance(there, str) else json.dumps(there, ensure_ascii=False)

    return _FOUND.sub(as_text, value)


def _reference(found: re.Match[str]) -> Reference:
    return Reference(found[0], found[1], path_of(found[2]))


def _look_up(reference: Reference, results: Mapping[str, JsonValue]) -> JsonValue:
    if reference.step not in results:
        raise Missing(f"{reference.text}: {reference.step} has no output")
    value, led = results[reference.step], f"$output.{reference.step}"
    for part in reference.path:
        match value, part:
            case dict(), str() if part in value:
                value, led = value[part], f"{led}.{part}"
            case list(), int() if part < len(value):
                value, led = value[part], f"{led}[{part}]"
            case _:
                raise Missing(f"{reference.text}: {led} is {_described(value)}")
    return value


def _described(value: JsonValue) -> str:
    match value:
        case dict():
            return (
                f"an object with the keys {shortened(', '.join(value), 120)}" if value else "an empty object"
            )
        case list():
            return f"a list of {len(value)}"
        case _:
            return shortened(json_line(value), 60)


def _size(value: JsonValue, most: int) -> int:
    """The characters of a value as JSON; counting ends soon after `most`."""
    size, waiting = 0, [value]
    while waiting and size <= most:
        one = waiting.pop()
        if isinstance(one, dict):
            size += 2 + sum(len(key) + 4 for key in one)
            waiting += one.values()
        elif isinstance(one, list):
            size += 2 + 2 * len(one)
            waiting += one
        else:
            size += len(one) + 2 if isinstance(one, str) else 5
    return size
