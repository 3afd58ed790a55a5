"""Read one YAML or JSON document strictly: no duplicate keys, no tags, no surprises of YAML 1.1 (pure)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml
from pydantic import JsonValue
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

MAX_CHARACTERS = 4 * 1024 * 1024
MAX_DEPTH = 60
MAX_VALUES = 200_000
"""Keys and values of YAML, each alias with all that it stands for; of JSON any number."""
MOST_IN_PYTHON = 1024 * 1024
"""Characters of a text that the parser in Python judges after libyaml, which is twenty times as fast, refused it."""

_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_NEVER = re.compile("[\x00\ud800-\udfff]")
# The core schema of YAML 1.2: "no", "on" and "1:30" stay text.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,300}|0x[0-9a-fA-F]{1,200}|0o[0-7]{1,200}")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_TOO_MUCH = f"it has more than {MAX_VALUES:,} keys and values or {MAX_DEPTH} levels, aliases counted"


class NotReadable(ValueError):
    """The text is not one strict document; the message states where and why, in one line."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        """`line` and `column` say what the message is about, from 1, and come before it."""
        where = (
            "" if line is None else f"line {line}: " if column is None else f"line {line}, column {column}: "
        )
        super().__init__(f"{where}{message}")
        self.line = line


class _NotYaml(NotReadable):
    """A parser of YAML refuses the text."""


class _TooMuch(NotReadable):
    """There are too many keys and values, or levels."""

    def __init__(self) -> None:
        super().__init__(_TOO_MUCH)


def read_document(text: str) -> JsonValue:
    """The value of the only document in `text`. Raises `NotReadable`, whatever the text is."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        raise NotReadable(f"at most {MAX_CHARACTERS:,} characters are read, it has {len(text):,}")
    if found := _NOT_TEXT.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise NotReadable(f"plain text is expected, not the character U+{ord(found[0]):04X}", line)
    value = _read_flow(text) if text.lstrip().startswith("{") else _read_yaml(text)
    _check(value, MAX_DEPTH)
    return value


def read_scalar(text: str) -> JsonValue:
    """A plain word as YAML reads it: null, boolean, number, else the text itself."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _NUMBER.fullmatch(text) and "inf" not in str(number := float(text)):
        return number
    return text


def _check(value: JsonValue, depth: int) -> None:
    """Refuse characters that escapes can produce and no database can store."""
    if depth == 0:
        raise NotReadable(f"at most {MAX_DEPTH} levels are read, it nests deeper")
    if isinstance(value, dict):
        for key, item in value.items():
            _check(key, depth)
            _check(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth - 1)
    elif isinstance(value, str) and (found := _NEVER.search(value)):
        raise NotReadable(f"text is expected, not the character U+{ord(found[0]):04X}, in {value[:40]!r}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise NotReadable("a number is too large")


def _read_flow(text: str) -> JsonValue:
    """JSON first: it allows tabs, which YAML does not, and is read a hundred times as fast."""
    try:
        return _read_json(text)
    except NotReadable:
        raise
    except (ValueError, RecursionError):
        return _read_yaml(text)


def _read_json(text: str) -> JsonValue:
    def unique(pairs: Sequence[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}
        for key, value in pairs:
            if key in found:
                raise NotReadable(f"the key {key!r} is there twice")
            found[key] = value
        return found

    def refuse(word: str) -> JsonValue:
        raise NotReadable(f"{word} is no JSON number")

    value: JsonValue = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    return value


def _read_yaml(text: str) -> JsonValue:
    """The value of a text in YAML. What libyaml refuses, the parser in Python judges: it takes tabs in more places."""
    if not yaml.__with_libyaml__:
        return _composed(text, yaml.SafeLoader, MAX_VALUES)
    try:
        return _composed(text, yaml.CSafeLoader, MAX_VALUES)
    except _NotYaml as refused:
        if len(text) > MOST_IN_PYTHON:
            raise
        try:
            return _composed(text, yaml.SafeLoader, MAX_VALUES // 10)
        except _TooMuch:
            raise refused from None


def _composed(text: str, loader: type[yaml.SafeLoader | yaml.CSafeLoader], most: int) -> JsonValue:
    try:
        return _Composer(yaml.parse(text, Loader=loader), most).read()
    except yaml.YAMLError as refused:
        raise _not_yaml(refused) from None


def _not_yaml(refused: yaml.YAMLError) -> _NotYaml:
    if not isinstance(refused, yaml.MarkedYAMLError):
        return _NotYaml(" ".join(str(refused).split()))
    mark = refused.problem_mark or refused.context_mark
    parts = (refused.context, refused.problem)
    problem = ", ".join(" ".join(str(part).split()) for part in parts if part)
    return _NotYaml(problem, mark.line + 1, mark.column + 1) if mark else _NotYaml(problem)


@dataclass(frozen=True)
class _Node:
    """Target of an anchor: its value, with its keys and values counted, its levels, and its text if it is a scalar."""

    value: JsonValue
    count: int
    depth: int
    text: str | None


class _Composer:
    """Makes values of events: as soon as there are too many, or too many levels, it ends."""

    def __init__(self, events: Iterator[Event], most: int) -> None:
        self._events = events
        self._most = most
        self._anchors: dict[str, _Node | None] = {}
        self._count = 0

    def read(self) -> JsonValue:
        """The value of the only document; None if there is none."""
        next(self._events)
        if not isinstance(next(self._events), DocumentStartEvent):
            return None
        node = self._node(next(self._events), 1)
        next(self._events)
        if isinstance(found := next(self._events), DocumentStartEvent):
            raise NotReadable("but found another document; one is expected", _line(found))
        return node.value

    def _node(self, event: Event, depth: int) -> _Node:
        if isinstance(event, AliasEvent):
            return self._named(event, depth)
        assert isinstance(event, NodeEvent), event
        self._count_values(1)
        if depth > MAX_DEPTH:
            raise NotReadable(f"at most {MAX_DEPTH} levels are read, it nests deeper")
        if (tag := getattr(event, "tag", None)) is not None:
            raise NotReadable(f"the tag {tag!r} is not used here")
        anchor = event.anchor
        if anchor is not None:
            if anchor in self._anchors:
                raise NotReadable(f"the anchor {anchor!r} is there twice", _line(event))
            self._anchors[anchor] = None
        before = self._count
        value, inner = self._value(event, depth)
        node = _Node(value, self._count - before + 1, inner + 1, _text(event))
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _value(self, event: Event, depth: int) -> tuple[JsonValue, int]:
        """The value that begins with `event`, and how many levels are in it."""
        if isinstance(event, SequenceStartEvent):
            return self._list(depth + 1)
        if isinstance(event, MappingStartEvent):
            return self._mapping(depth + 1)
        assert isinstance(event, ScalarEvent)
        return str(event.value) if event.style else read_scalar(event.value), 0

    def _list(self, depth: int) -> tuple[list[JsonValue], int]:
        found, inner = list[JsonValue](), 0
        while not isinstance(event := next(self._events), CollectionEndEvent):
            node = self._node(event, depth)
            inner = max(inner, node.depth)
            found.append(node.value)
        return found, inner

    def _mapping(self, depth: int) -> tuple[dict[str, JsonValue], int]:
        found, inner = dict[str, JsonValue](), 0
        while not isinstance(event := next(self._events), CollectionEndEvent):
            key = self._node(event, depth).text
            if key is None:
                raise NotReadable("a key is text, not a collection", _line(event))
            if key in found:
                raise NotReadable(f"the key {key!r} is there twice", _line(event))
            node = self._node(next(self._events), depth)
            inner = max(inner, node.depth)
            found[key] = node.value
        return found, inner

    def _named(self, event: AliasEvent, depth: int) -> _Node:
        """Value that an alias stands for, counted again: that ends alias bombs, and aliases to what they are in."""
        if event.anchor not in self._anchors:
            raise NotReadable(f"found undefined alias {event.anchor!r}", _line(event))
        node = self._anchors[event.anchor]
        if node is None or depth + node.depth - 1 > MAX_DEPTH:
            raise _TooMuch
        self._count_values(node.count)
        return node

    def _count_values(self, count: int) -> None:
        self._count += count
        if self._count > self._most:
            raise _TooMuch


def _line(event: Event) -> int:
    mark = event.start_mark
    return 0 if mark is None else mark.line + 1


def _text(event: Event) -> str | None:
    return str(event.value) if isinstance(event, ScalarEvent) else None
