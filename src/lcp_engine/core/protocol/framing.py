"""Find the one JSON object in a text, past thoughts, Markdown and prose (R1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from json import JSONDecoder

from pydantic import JsonValue

from lcp_engine.core.protocol.strict_json import Broken, StrictDecoder, place, shown

MAX_THOUGHTS = 100


@dataclass(frozen=True)
class Framed:
    """The object, the span where it stands, and what stood around it, white space aside."""

    value: dict[str, JsonValue]
    start: int
    end: int
    recovered: tuple[str, ...]


@dataclass(frozen=True)
class Unframed:
    """No single object: one sentence that says why, and what was removed before that was clear."""

    message: str
    recovered: tuple[str, ...] = ()


def find_object(text: str) -> Framed | Unframed:
    """The one top-level object of `text`. Total: any text gives a value, in time linear in its length."""
    refusal = _refuse_characters(text)
    if refusal:
        return Unframed(refusal)
    decoder = StrictDecoder(text)
    marks = _Marks(text)
    head = _skip_thoughts(text, marks, decoder)
    if isinstance(head, Unframed):
        return head
    start = marks.objects.at(head.end)
    if start == marks.none:
        return Unframed(_describe_missing(text[head.end :]), head.recovered)
    prefix = text[head.end : start]
    if _is_inside_array(prefix):
        return Unframed("one JSON object is expected; this one stands inside an array", head.recovered)
    found = decoder.decode(start)
    if isinstance(found, Broken):
        return Unframed(found.message, head.recovered)
    refusal = _refuse_rest(text, found.end)
    if refusal:
        return Unframed(refusal, head.recovered)
    around = _name_surroundings(prefix, text[found.end :])
    return Framed(found.value, start, found.end, tuple(dict.fromkeys((*head.recovered, *around))))


_BOM = "\ufeff"
_THINK, _THOUGHT = "<think>", "</think>"
# Any kind of quote: what looks like an object and cannot be read is refused, not taken for prose.
_OBJECT = re.compile("\\{\\s*[\"'\u2018\u2019\u201c\u201d\u201e{}]")
_FENCE_LINE = re.compile(r"(`{3,}|~{3,})[ \t]*[\w.+-]*\Z")


def _refuse_characters(text: str) -> str | None:
    nul = text.find("\0")
    if nul >= 0:
        return f"{place(text, nul)}: a reply holds no U+0000; one stands here"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"{place(text, error.start)}: a reply is Unicode text; a lone surrogate stands here"
    return None


class _Next:
    """Where something stands next, looked for once: the positions asked for only grow."""

    def __init__(self, find: Callable[[int], int]) -> None:
        self._find = find
        self._found = -1

    def at(self, position: int) -> int:
        if self._found < position:
            self._found = self._find(position)
        return self._found


class _Marks:
    """The next object, `<think>` and `</think>` of a text; `none`, beyond its end, where there is no more."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.none = len(text) + 1
        self.objects = _Next(self._find_object)
        self.openers = _Next(lambda position: self._find(_THINK, position))
        self.closers = _Next(lambda position: self._find(_THOUGHT, position))

    def _find_object(self, position: int) -> int:
        match = _OBJECT.search(self._text, position)
        return match.start() if match else self.none

    def _find(self, mark: str, position: int) -> int:
        found = self._text.find(mark, position)
        return self.none if found < 0 else found


@dataclass(frozen=True)
class _Head:
    """What was removed before the index at which the rest begins."""

    end: int
    recovered: tuple[str, ...]


def _skip_thoughts(text: str, marks: _Marks, decoder: StrictDecoder) -> _Head | Unframed:
    recovered = ["byte order mark"] if text.startswith(_BOM) else []
    position = len(recovered)
    for _ in range(MAX_THOUGHTS + 1):
        start, opener, closer = (n.at(position) for n in (marks.objects, marks.openers, marks.closers))
        if opener < min(start, closer):
            if closer == marks.none:
                return Unframed(f"{place(text, opener)}: <think> is never closed", tuple(recovered))
            if text[position:opener].strip():
                recovered.append("prose before the object")
        elif closer == marks.none or not (closer < start or _is_loose(text, position, marks, decoder)):
            return _Head(position, tuple(recovered))
        recovered.append("<think> section")
        position = closer + len(_THOUGHT)
    return Unframed(f"{MAX_THOUGHTS} <think> sections are read at most; there are more", ("<think> section",))


def _is_loose(text: str, position: int, marks: _Marks, decoder: StrictDecoder) -> bool:
    """Whether the next `</think>`, behind the begin of an object and without an opener, ends a thought.

    It does unless it stands in a string of an object. An object that cannot be read counts as a draft in a
    thought, but not where it begins the reply: then it is the answer, and broken.
    """
    closer = marks.closers.at(position)
    if marks.openers.at(position) < closer:
        return False
    start = marks.objects.at(position)
    for _ in range(MAX_THOUGHTS):
        draft = decoder.decode(start)
        begins_reply = not text[position:start].strip()
        if draft.end > closer or (isinstance(draft, Broken) and begins_reply):
            return False
        match = _OBJECT.search(text, draft.end, closer)
        if not match:
            return True
        start = match.start()
    return False


def _describe_missing(rest: str) -> str:
    rest = rest.strip()
    if not rest:
        return "one JSON object is expected; the reply is empty"
    if rest.startswith("["):
        return "one JSON object is expected; found an array"
    if rest.startswith('"{'):
        return "one JSON object is expected; found a string that holds one"
    return f"one JSON object is expected; found only {shown(rest)}"


def _is_inside_array(prefix: str) -> bool:
    head = prefix.rstrip()
    if not head.endswith(","):
        return head.endswith("[")
    return any(_is_array(head[start:-1] + "]") for start in {head.find("["), head.rfind("[")} if start >= 0)


def _is_array(text: str) -> bool:
    try:
        return JSONDecoder().raw_decode(text)[1] == len(text)
    except (ValueError, RecursionError):
        return False


def _refuse_rest(text: str, end: int) -> str | None:
    opener = text.rfind(_THINK, end)
    if opener > text.rfind(_THOUGHT, end):
        return f"{place(text, opener)}: <think> is never closed"
    another = _OBJECT.search(text, end)
    if another:
        return f"{place(text, another.start())}: exactly one JSON object is expected; another begins here"
    return None


def _name_surroundings(prefix: str, suffix: str) -> list[str]:
    before, after, names = prefix.strip(), suffix.strip(), []
    fence = _FENCE_LINE.search(before[-120:])
    if fence and after.startswith(fence[1]):
        names.append("Markdown fence")
        before, after = before[: -len(fence[0])].strip(), after[len(fence[1]) :].strip()
    if before:
        names.append("prose before the object")
    if after:
        names.append("prose after the object")
    return names
