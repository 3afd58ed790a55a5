"""Make text safe to display: different texts never look alike. Pure.

A character that cannot be seen, or not be told from another one, is replaced by its name, `<U+200B>`. Text that was cut
ends with what is missing, `<34 more>`. Where a text itself contains something like that, its `<` becomes `<U+003C>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias
from unicodedata import category, combining, is_normalized

Printable: TypeAlias = Mapping[str, object] | Sequence[object] | str | float | bool | None


UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that no text of a database has: PostgreSQL stores no U+0000, and UTF-8 has no half of a surrogate pair."""


def is_storable(value: object) -> bool:
    """True if every database stores each text in a value, those of its keys included."""
    if isinstance(value, str):
        return UNSTORABLE.search(value) is None
    parts = (*value, *value.values()) if isinstance(value, Mapping) else value
    return not isinstance(parts, Sequence) or all(map(is_storable, parts))


class Shown(str):
    """A text that has been made safe; it is not made safe a second time."""

    __slots__ = ()


def without_escapes(text: str) -> str:
    """`text` without the sequences that terminals take for colours, titles and links, and with Unix line ends."""
    return _ESCAPES.sub("", text)


# What Python calls printable and is not: the Default_Ignorable_Code_Point of Unicode, and letters whose glyph is blank.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U00013441\U00013442\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])|\r(?=\n)")
"""Sequences for terminals (colours, titles, links, character sets), and the first half of a line end of Windows."""
MOST_OF_NAME = 300
_BACKTICKS = re.compile("`+")
_SIGN = r"<(?=U\+|[0-9][0-9,]* more)"
_WIDE = "[^\x00-\x7f]+"
_IN_BLOCK = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f]|{_SIGN}|{_WIDE}")
_IN_LINE = re.compile(rf"[\x00-\x1f\x7f]|{_SIGN}|\A +| +\Z|(?<= ) +|{_WIDE}")
_IN_EXACT = re.compile(rf"[\x00-\x09\x0b-\x1f\x7f]|{_SIGN}| (?=\n|\Z)|\u21e5|[^\x00-\x7f\u21e5]+")
_IN_JSON = re.compile("\x7f|[^\x00-\x7f]+")
_BEGUN_NAME = re.compile(r"<(?:U(?:\+[0-9A-F]*)?|[0-9][0-9,]*(?: (?:m(?:or?)?|more)?)?)?\Z")
_TAB = "\u21e5\t"

# Symbols that U+FE0F turns into a picture: those of emoji-variation-sequences.txt that are none without it.
_PICTURED = re.compile(
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u2328\u23cf\u23ed-\u23ef\u23f1\u23f2\u23f8-\u23fa\u24c2"
    "\u25aa\u25ab\u25b6\u25c0\u25fb\u25fc\u2600-\u2604\u260e\u2611\u2618\u261d\u2620\u2622\u2623\u2626\u262a\u262e\u262f"
    "\u2638-\u263a\u2640\u2642\u265f\u2660\u2663\u2665\u2666\u2668\u267b\u267e\u2692\u2694-\u2697\u2699\u269b\u269c\u26a0"
    "\u26a7\u26b0\u26b1\u26c8\u26cf\u26d1\u26d3\u26e9\u26f0\u26f1\u26f4\u26f7-\u26f9\u2702\u2708\u2709\u270c\u270d\u270f"
    "\u2712\u2714\u2716\u271d\u2721\u2733\u2734\u2744\u2747\u2763\u2764\u27a1\u2934\u2935\u2b05-\u2b07\u3030\u303d\u3297"
    "\u3299]"
)
_PICTURE = "\ufe0f"
_KEYCAP = "\u20e3"
# Arabic letters by their Joining_Type: those that join the next one (D), and those that are joined (D and R).
_DUAL = (
    "\u0620\u0626\u0628\u062a-\u062e\u0633-\u063f\u0641-\u0647\u0649\u064a"
    "\u067e\u0686\u06a9\u06af\u06be\u06c1\u06cc"
)
_JOINS = re.compile(f"[{_DUAL}]")
_IS_JOINED = re.compile(
    f"[{_DUAL}\u0622-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671\u0688\u0691\u0698\u06c0\u06c3\u06d2]"
)
_NON_JOINER, _JOINER = "\u200c", "\u200d"
_VIRAMA = 9


def one_line(text: str) -> Shown:
    """`text` on one line, such as a path: line ends and tabs are named too, and spaces that would be lost."""
    if isinstance(text, Shown):
        return Shown(text.replace("\n", _name("\n")).replace("\t", _name("\t")))
    return _made_safe(_IN_LINE, text)


def sentence(text: str) -> Shown:
    """`text` as words on one line, such as an error: line ends and tabs are spaces, which are as they are inside it."""
    words = re.sub(r"[ ]*[\t\r\n]\s*", " ", text).strip(" ")
    return Shown(words) if isinstance(text, Shown) else _made_safe(_IN_BLOCK, words)


def block(text: str) -> Shown:
    """`text` with its line ends, tabs and spaces as they are."""
    if isinstance(text, Shown):
        return text
    # Most texts are short and plain.
    if text.isascii() and text.isprintable() and "<" not in text:
        return Shown(text)
    return _made_safe(_IN_BLOCK, text)


def exact(text: str) -> Shown:
    """Like `block`, for what a person decides on: a tab is seen (as `⇥`), and a space at the end of a line."""
    return text if isinstance(text, Shown) else _made_safe(_IN_EXACT, text)


def hides_nothing(text: str) -> bool:
    """True if a person who sees the text in a field sees all of it."""
    plain = text.replace("<", "")
    return block(plain) == plain


def json_block(value: Printable) -> Shown:
    """`value` as indented JSON without invisible characters; parsing it gives `value` again."""
    return _as_json(json.dumps(value, ensure_ascii=False, indent=2, default=list))


def json_line(value: Printable) -> Shown:
    """Like `json_block`, on one line and as short as possible."""
    return _as_json(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=list))


def fenced(text: str) -> str:
    """`text` between fences of Markdown that nothing in it can close."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{fence}"


def quoted(name: str, most: int = MOST_OF_NAME) -> str:
    """A file's name as a JSON string, so that no name reads as a sentence of a prompt; a longer one is shortened."""
    return json_line(name if len(name) <= most else f"{name[: most - 1]}…")


def shortened(text: str, most: int) -> Shown:
    """The first `most` characters like `block`, and how many are left out; a name such as `<U+200B>` is not cut."""
    if len(text) <= most:
        return block(text)
    begun = _BEGUN_NAME.sub("", text[:most]) if isinstance(text, Shown) else block(text[:most])
    kept = len(begun) if isinstance(text, Shown) else most
    return Shown(f"{begun}<{len(text) - kept:,} more>")


def _made_safe(pattern: re.Pattern[str], text: str) -> Shown:
    def seen(found: re.Match[str]) -> str:
        run = found[0]
        if pattern is _IN_EXACT and run == "\t":
            return _TAB
        return "".join(map(_name, run)) if run.isascii() or run == "\u21e5" else _seen(found, _name)

    return Shown(pattern.sub(seen, text))


def _as_json(text: str) -> Shown:
    return Shown(_IN_JSON.sub(lambda found: _seen(found, _escape), text))


def _name(character: str) -> str:
    return f"<U+{ord(character):04X}>"


def _escape(character: str) -> str:
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def _seen(found: re.Match[str], name: Callable[[str], str]) -> str:
    """A run of characters beyond ASCII, with some of them named."""
    run, text = found[0], found.string
    before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    before = before if before.isalnum() else ""
    if _is_plain(run, before):
        return run
    parts: list[str] = []
    cluster = before
    for at, character in enumerate(run):
        if _is_seen(character, cluster, run[at + 1 : at + 2] or after):
            cluster = f"{cluster}{character}" if combining(character) else character
            parts.append(character)
        else:
            cluster = ""
            parts.append(name(character))
    return "".join(parts)


def _is_plain(run: str, before: str) -> bool:
    """True if a run is as it seems, at a glance; most are."""
    if not (run.isprintable() and is_normalized("NFC", before + run)) or _BLANK.search(run):
        return False
    return bool(before) or not category(run[0]).startswith("M")


def _is_seen(character: str, cluster: str, after: str) -> bool:
    """True if a character makes a visible difference; `cluster` is what it is drawn with, `after` what follows."""
    last = cluster[-1:]
    if character == _PICTURE:
        return _PICTURED.match(last) is not None or (after == _KEYCAP and last.isdigit() and last.isascii())
    if character in (_NON_JOINER, _JOINER):
        if last and combining(last) == _VIRAMA:
            return after.isalpha()
        joins = _JOINS.match(last) is not None and _IS_JOINED.match(after) is not None
        return character == _NON_JOINER and joins
    if not character.isprintable() or _BLANK.match(character):
        return False
    if not last and category(character).startswith("M"):
        return False  # a mark without a letter is drawn on what is not part of the text
    return is_normalized("NFC", cluster + character)  # else it looks like one character
