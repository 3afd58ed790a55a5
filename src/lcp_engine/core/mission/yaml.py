"""Read one YAML or JSON document strictly: no duplicate keys, no tags, no surprises of YAML 1.1 (pure)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence

import yaml
from pydantic import JsonValue
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

MAX_CHARACTERS = 1024 * 1024
MAX_DEPTH = 60
MAX_VALUES = 20_000
"""Keys and values of YAML, which is read slowly, each alias with all that it stands for; of JSON any number."""

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


def read_document(text: str) -> JsonValue:
    """The value of the only document in `text`. Raises `NotReadable`, whatever the text is."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        raise NotReadable(f"at most {MAX_CHARACTERS:,} characters are read, it has {len(text):,}")
    if found := _NOT_TEXT.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise NotReadable(f"line {line}: plain text is expected, not the character U+{ord(found[0]):04X}")
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


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """Composes nodes only: nothing is constructed, and the depth is bounded before Python's stack is."""

    depth = 0
    nodes = 0

    def __init__(self, stream: str) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        self.nodes += 1
        if self.nodes > MAX_VALUES:
            raise NotReadable(_TOO_MUCH)
        if self.depth > MAX_DEPTH:
            raise NotReadable(f"at most {MAX_DEPTH} levels are read, it nests deeper")
        tag = getattr(self.peek_event(), "tag", None)  # type: ignore[no-untyped-call]  # untyped in the stubs
        if tag is not None:
            raise NotReadable(f"the tag {tag!r} is not used here")
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _read_yaml(text: str) -> JsonValue:
    try:
        node = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as refused:
        raise NotReadable(_explain(refused)) from None
    except yaml.YAMLError as refused:
        raise NotReadable(" ".join(str(refused).split())) from None
    return None if node is None else _value(node, iter(range(MAX_VALUES)), MAX_DEPTH)


def _explain(refused: yaml.MarkedYAMLError) -> str:
    mark = refused.problem_mark or refused.context_mark
    parts = (refused.context, refused.problem)
    problem = ", ".join(" ".join(str(part).split()) for part in parts if part)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _value(node: yaml.Node, budget: Iterator[int], depth: int) -> JsonValue:
    """Aliases are copied: `budget` ends alias bombs, `depth` aliases to themselves."""
    if depth == 0 or next(budget, None) is None:
        raise NotReadable(_TOO_MUCH)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, budget, depth - 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        found: dict[str, JsonValue] = {}
        for name, item in node.value:
            key = _key(name)
            if key in found:
                raise NotReadable(f"line {name.start_mark.line + 1}: the key {key!r} is there twice")
            found[key] = _value(item, budget, depth - 1)
        return found
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    raise NotReadable(f"line {node.start_mark.line + 1}: a value is expected")


def _key(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise NotReadable(f"line {node.start_mark.line + 1}: a key is text, not a collection")
    return str(node.value)


def _scalar(node: yaml.ScalarNode) -> JsonValue:
    return read_scalar(node.value) if node.style is None else str(node.value)
