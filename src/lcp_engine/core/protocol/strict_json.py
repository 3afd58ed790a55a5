"""Find the one JSON object in a text (past thoughts, Markdown and prose) and decode it without any repair (R1)."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from json import JSONDecoder
from typing import NoReturn

from pydantic import JsonValue

MAX_DEPTH = 100
MAX_DIGITS = 1000


@dataclass(frozen=True)
class Decoded:
    """A whole object and the index behind it."""

    value: dict[str, JsonValue]
    end: int


@dataclass(frozen=True)
class Broken:
    """No object: the reason in one sentence, and the index up to which the text was understood."""

    message: str
    end: int


def place(text: str, index: int) -> str:
    """`index` as people count: `line 3, column 14`."""
    line_start = text.rfind("\n", 0, index) + 1
    return f"line {text.count(chr(10), 0, index) + 1}, column {index - line_start + 1}"


@dataclass(frozen=True)
class JsonFault:
    """The first thing in a text that is not JSON, as `json` names it, and its index."""

    name: str
    index: int


def json_fault(error: json.JSONDecodeError) -> JsonFault:
    """The fault as Python 3.13 names it: before that, `json` does not name a trailing comma but what follows it."""
    following = error.doc[error.pos : error.pos + 1]
    if (following, error.msg) in _AFTER_COMMA:
        before = error.doc[: error.pos].rstrip(" \t\n\r")
        if before.endswith(","):
            return JsonFault("Illegal trailing comma", len(before) - 1)
    return JsonFault(error.msg, error.pos)


_AFTER_COMMA = {("}", "Expecting property name enclosed in double quotes"), ("]", "Expecting value")}


class StrictDecoder:
    """Decodes objects of one text; whether its numbers need checks is determined once for the whole text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decoder = _decoder_for(text)

    def decode(self, start: int) -> Decoded | Broken:
        """The object whose `{` is at `start`. Never raises."""
        try:
            with _uncollected(len(self._text)):
                value, end = self._decoder.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            fault = json_fault(error)
            return Broken(_explain(self._text, fault), max(fault.index, start + 1))
        except RecursionError:
            return Broken(_TOO_DEEP, len(self._text))
        except ValueError as error:
            return Broken(str(error), self._find_end(start))
        problem = _find_depth(self._text, start, end) or _find_escape(self._text, start, end, value)
        return Broken(problem, end) if problem else Decoded(value, end)

    def _find_end(self, start: int) -> int:
        """The end of an object that is JSON, but not strict JSON, so that its inside is not read again."""
        try:
            return json.JSONDecoder(parse_int=str, parse_float=str).raw_decode(self._text, start)[1]
        except json.JSONDecodeError as error:
            return max(json_fault(error).index, start + 1)
        except RecursionError:
            return len(self._text)


_TOO_DEEP = f"nesting goes to {MAX_DEPTH} levels at most; this object goes deeper"
_FLATTEN_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_KEEP_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_UP_AND_DOWN = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NUL_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def _decoder_for(text: str) -> json.JSONDecoder:
    # The hooks for numbers cost a call each, so they are set only if the text may hold numbers of that size.
    digits = text.encode("utf-8", "surrogatepass").translate(_FLATTEN_DIGITS, b"+")
    may_overflow = b"0" * 200 in digits or b"0e000" in digits
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
        parse_float=_finite if may_overflow else None,
        parse_int=_short if b"0" * (MAX_DIGITS + 1) in digits else None,
    )


@contextmanager
def _uncollected(size: int) -> Iterator[None]:
    # Millions of new containers make the garbage collector visit all of them again and again, in vain: that doubles
    # or triples the time of a large text.
    if size < 1_000_000 or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"an object has each key once; {shown(twice)} occurs more than once in one")
    return unique


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"a number is written with digits; {name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"a number fits a double (at most about 1.8e308); {shown(digits)} does not")
    return number


def _short(digits: str) -> int:
    count = len(digits.lstrip("-"))
    if count > MAX_DIGITS:
        raise ValueError(f"an integer has {MAX_DIGITS:,} digits at most; one here has {count:,}")
    return int(digits)


_EXPECTED = {
    "Expecting property name": "a key in double quotes is expected",
    "Illegal trailing comma": "no comma is expected before the end",
    "Expecting ':'": "a colon is expected after the key",
    "Expecting ','": "a comma or the closing bracket is expected",
    "Expecting value": "a JSON value is expected",
    "Unterminated string": "a string ends with a double quote",
    "Invalid control character": "control characters in a string are escaped (\\n, \\t)",
    "Invalid \\escape": 'a backslash in a string is written \\\\ or escapes one of "\\/bfnrtu',
    "Invalid \\u": "\\u takes four hexadecimal digits",
}


def _explain(text: str, fault: JsonFault) -> str:
    expected = next((words for start, words in _EXPECTED.items() if fault.name.startswith(start)), fault.name)
    if fault.name.startswith("Unterminated string"):
        return f"{place(text, fault.index)}: {expected}; the string that begins here never ends"
    rest = text[fault.index : fault.index + 20]
    found = shown(rest) if rest.strip() else "the end of the text: the object is not complete"
    return f"{place(text, fault.index)}: {expected}; found {found}"


def _find_depth(text: str, start: int, end: int) -> str | None:
    if text.count("{", start, end) + text.count("[", start, end) <= MAX_DEPTH:
        return None
    # Without escapes, every second piece between quotes is outside of strings.
    plain = text[start:end].encode("utf-8", "surrogatepass").replace(rb"\\", b"").replace(rb"\"", b"")
    brackets = b"".join(plain.split(b'"')[::2]).translate(_UP_AND_DOWN, _KEEP_BRACKETS)
    return _TOO_DEEP if max(accumulate(memoryview(brackets).cast("b"))) > MAX_DEPTH else None


def _find_escape(text: str, start: int, end: int, value: JsonValue) -> str | None:
    if text.find("\\u", start, end) < 0:
        return None
    if text.find("\\u0000", start, end) >= 0 and _NUL_ESCAPE.search(text, start, end):
        return "a string must not contain U+0000; \\u0000 is in one here"
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"surrogates come in pairs; \\u{ord(error.object[error.start]):04x} is alone in a string"
    return None


def shown(value: JsonValue, limit: int = 60) -> str:
    """`value` for a message, as JSON on one line, shortened; never longer than `limit` by much."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= limit else value[:limit] + "…", ensure_ascii=False)
    if isinstance(value, dict):
        return "an object" if value else "{}"
    if isinstance(value, list):
        return f"a list of {len(value):,}" if value else "[]"
    words = json.dumps(value)
    return words if len(words) <= limit else words[:limit] + "…"


MAX_THOUGHTS = 100


@dataclass(frozen=True)
class Framed:
    """The object, its span in the text, and what was removed around it, except white space."""

    value: dict[str, JsonValue]
    start: int
    end: int
    recovered: tuple[str, ...]


@dataclass(frozen=True)
class Unframed:
    """No single object: the reason in one sentence, and what had been removed by then."""

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
        return Unframed("one JSON object is expected; this one is inside an array", head.recovered)
    unclosed = _follow_braces(text, head.end, start, head.braces)
    if unclosed:
        return Unframed(
            f"{place(text, unclosed[0])}: the brace that opens here is not closed before the object; "
            "one JSON object is expected, inside nothing else",
            head.recovered,
        )
    found = decoder.decode(start)
    if isinstance(found, Broken):
        return Unframed(found.message, head.recovered)
    refusal = _refuse_rest(text, found.end)
    if refusal:
        return Unframed(refusal, head.recovered)
    around = _look_around(prefix, text[found.end :])
    if around.has_prose_after and (head.has_prose or around.has_prose_before):
        return Unframed(
            "one JSON object is expected, with words on one side of it at most; here they stand on both sides",
            head.recovered,
        )
    return Framed(found.value, start, found.end, tuple(dict.fromkeys((*head.recovered, *around.names))))


def is_bare_object(text: str) -> bool:
    """True if `text` is one JSON object and nothing else, as R1 needs it of a thought that is read as a reply."""
    bare = text.strip()
    found = find_object(bare)
    return isinstance(found, Framed) and (found.start, found.end) == (0, len(bare))


_BOM = "\ufeff"
_HARMONY = "<|channel|>analysis<|message|>"
THOUGHTS: Mapping[str, str] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
    "<unused94>thought": "<unused95>",
    _HARMONY: "<|end|>",
}
"""The marks between which models think, and which some servers leave in the text."""
# What else harmony, Cohere and Gemma have around a reply.
_MARK = re.compile(
    r"<\|start\|>assistant|<\|channel\|>(?:final|commentary)|[ ]?<\|constrain\|>\w+|<\|(?:message|end|return)\|>"
    r"|<\|(?:START|END)_(?:RESPONSE|TEXT)\|>|<turn\|>"
)
# Any kind of quote: text that looks like an object and cannot be read is refused, not treated as prose.
_OBJECT = re.compile("\\{\\s*[\"'\u2018\u2019\u201c\u201d\u201e{}]")
_BRACE = re.compile("[{}]")
_FENCE_LINE = re.compile(r"(`{3,}|~{3,})[ \t]*[\w.+-]*\Z")
# Letters and digits of any script make prose; punctuation, symbols and the lines of a fence do not.
_WORD = re.compile(r"[^\W_]")


def _refuse_characters(text: str) -> str | None:
    nul = text.find("\0")
    if nul >= 0:
        return f"{place(text, nul)}: a reply must not contain U+0000; it does here"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"{place(text, error.start)}: a reply is Unicode text; here is a lone surrogate"
    return None


class _Next:
    """The next position of something; found once, because the positions asked for only grow."""

    def __init__(self, find: Callable[[int], int]) -> None:
        self._find = find
        self._found = -1

    def at(self, position: int) -> int:
        if self._found < position:
            self._found = self._find(position)
        return self._found


class _Marks:
    """The next object and marks of thoughts in a text; `none`, beyond its end, if there is none."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.none = len(text) + 1
        self.objects = _Next(self._find_object)
        self._openers = {mark: _Next(partial(self._find, mark)) for mark in THOUGHTS}
        self._closers = {mark: _Next(partial(self._find, THOUGHTS[mark])) for mark in THOUGHTS}

    def opener(self, position: int) -> tuple[int, str]:
        """The next beginning of a thought, and its mark."""
        return min((found.at(position), mark) for mark, found in self._openers.items())

    def closer_of(self, mark: str, position: int) -> int:
        return self._closers[mark].at(position)

    def closer(self, position: int) -> tuple[int, str]:
        """The next end of a thought that may lack its beginning, and the mark of that; harmony ends replies alike."""
        return min((found.at(position), mark) for mark, found in self._closers.items() if mark != _HARMONY)

    def _find_object(self, position: int) -> int:
        match = _OBJECT.search(self._text, position)
        return match.start() if match else self.none

    def _find(self, mark: str, position: int) -> int:
        found = self._text.find(mark, position)
        return self.none if found < 0 else found


@dataclass(frozen=True)
class _Head:
    """The index at which the rest begins, what was removed before it, and the open braces of the prose among that."""

    end: int
    recovered: tuple[str, ...]
    braces: list[int]
    has_prose: bool


def _skip_thoughts(text: str, marks: _Marks, decoder: StrictDecoder) -> _Head | Unframed:
    recovered = ["byte order mark"] if text.startswith(_BOM) else []
    position, braces, has_prose = len(recovered), list[int](), False
    for _ in range(MAX_THOUGHTS + 1):
        start, (opener, mark), (closer, closed) = (
            marks.objects.at(position), marks.opener(position), marks.closer(position),
        )  # fmt: skip
        if opener < min(start, closer):
            closer, closed = marks.closer_of(mark, opener), mark
            if closer == marks.none:
                return Unframed(f"{place(text, opener)}: {mark} is never closed", tuple(recovered))
            before, names = _without_marks(text[position:opener])
            recovered += names
            if before:
                recovered.append("prose before the object")
                braces = _follow_braces(text, position, opener, braces)
                has_prose = has_prose or _WORD.search(before) is not None
        elif closer == marks.none or not (closer < start or _is_loose(text, position, marks, decoder)):
            return _Head(position, tuple(recovered), braces, has_prose)
        recovered.append(f"{closed} section")
        position = closer + len(THOUGHTS[closed])
    return Unframed(
        f"{MAX_THOUGHTS} thoughts are read at most; there are more", tuple(dict.fromkeys(recovered))
    )


def _without_marks(text: str) -> tuple[str, list[str]]:
    """The text without marks and white space around it, and the name of what was removed."""
    bare = _MARK.sub("", text)
    return bare.strip(), ["channel marks"] if bare != text else []


def _is_loose(text: str, position: int, marks: _Marks, decoder: StrictDecoder) -> bool:
    """True if the next closer, which has no opener and follows the beginning of an object, ends a thought.

    It does unless it is inside a string of an object. An object that cannot be read counts as a draft in a thought,
    unless the reply begins with it: then it is the answer, and broken.
    """
    closer = marks.closer(position)[0]
    if marks.opener(position)[0] < closer:
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


def _follow_braces(text: str, start: int, end: int, before: list[int]) -> list[int]:
    """The positions of the braces that are open at `end` if those of `before` are open at `start`."""
    opened = [*before]
    for brace in _BRACE.finditer(text, start, end):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            opened.pop()
    return opened


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
    for mark, closer in THOUGHTS.items():
        opener = text.rfind(mark, end)
        if opener > text.rfind(closer, end):
            return f"{place(text, opener)}: {mark} is never closed"
    another = _OBJECT.search(text, end)
    if another:
        return f"{place(text, another.start())}: exactly one JSON object is expected; another begins here"
    return None


@dataclass(frozen=True)
class _Surroundings:
    """Surroundings of an object: its names, and the sides on which it is prose."""

    names: tuple[str, ...]
    has_prose_before: bool
    has_prose_after: bool


def _look_around(prefix: str, suffix: str) -> _Surroundings:
    (before, names), (after, more) = _without_marks(prefix), _without_marks(suffix)
    names += more
    fence = _FENCE_LINE.search(before[-120:])
    words_before = before[: -len(fence[0])] if fence else before
    if fence and after.startswith(fence[1]):
        names.append("Markdown fence")
        before, after = words_before.strip(), after[len(fence[1]) :].strip()
    if before:
        names.append("prose before the object")
    if after:
        names.append("prose after the object")
    return _Surroundings(
        tuple(names), _WORD.search(words_before) is not None, _WORD.search(after) is not None
    )
