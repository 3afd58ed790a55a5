"""Remove a key from what a server sent, also one that is spelled in another way, split, or cut off. Pure.

A server that wants to hide a key it was sent can always do so. What servers do in errors and replies is found: echoes
of the key as it is, and in common encodings.
"""

from __future__ import annotations

import re
from array import array
from base64 import b32encode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from html.entities import codepoint2name

from pydantic import JsonValue

MARK = "…"
WINDOW = 8
"""As much of a key's beginning is removed where a text was cut."""
FRAGMENT = 16
"""As much of a key is removed wherever it is."""
SHORTEST = 6
"""Characters of a key that is removed in other spellings, too."""
LONGEST_SPELLING = 16
"""Bytes that a character of a key has in the longest usual spelling."""
_LEAST = 12
"""A key with fewer letters and digits may be a word of a text, as `lm-studio` is: only the exact key is removed."""


def scrubbed(text: str, key: str) -> str:
    """`text` without `key`: as it is, in other case, escaped, in base64 or hex, split by other characters, or cut."""
    text = text.replace(key, MARK)
    if len(key) < SHORTEST:
        return text
    text = _without_spellings(text, key)
    spellings = _spellings(key)
    if not spellings or not _has_any(_bare(text), _windows(spellings)):
        return text
    bare, starts, ends = _mapped(text)
    spans = sorted(
        (starts[first], ends[last - 1])
        for spelling in spellings
        for first, last in _found(bare, spelling)
        if _is_secret(last - first, spelling, spellings[0])
        or (bare.startswith(spelling[:WINDOW], first) and _CUT.match(text, ends[last - 1]))
    )
    return _without(text, spans)


def scrubbed_value(value: JsonValue, keys: Sequence[str]) -> JsonValue:
    """A decoded value without the keys: in texts, in names, and as numbers. Names that become equal stay apart."""
    if isinstance(value, str):
        for key in keys:
            value = scrubbed(value, key)
        return value
    if isinstance(value, list):
        return [scrubbed_value(one, keys) for one in value]
    if isinstance(value, dict):
        found: dict[str, JsonValue] = {}
        for name, one in value.items():
            told = str(scrubbed_value(name, keys))
            while told in found:
                told += MARK
            found[told] = scrubbed_value(one, keys)
        return found
    if isinstance(value, int | float) and not isinstance(value, bool):
        return MARK if any(_is_number(value, key) for key in keys) else value
    return value


def _is_number(value: float, key: str) -> bool:
    try:
        return Decimal(str(value)).copy_abs() == Decimal(key).copy_abs()  # abs() raises for "5e8237461"
    except InvalidOperation:
        return False


def without_secrets(text: str, environment: Mapping[str, str]) -> str:
    """`text` without the keys of the environment, and without what has the form of a key."""
    for name, value in environment.items():
        if _NAMES_SECRET.search(name) and len(value.strip()) >= FRAGMENT:
            text = scrubbed(text, value.strip())
    return _LIKE_KEYS.sub(MARK, text)


_NAMES_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)S?$", re.IGNORECASE)
_LIKE_KEYS = re.compile(
    r"""
    \b (?: sk-[A-Za-z0-9_-]{16,} | gh[opsur]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,}
        | xox[abeprs]-[A-Za-z0-9-]{10,} | (?:AKIA|ASIA)[A-Z0-9]{16} | AIza[A-Za-z0-9_-]{30,}
        | eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,} )
    | -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)


def _without_spellings(text: str, key: str) -> str:
    """`text` without a whole key whose characters are escaped, or that is in hex or base64, also in a longer text."""
    escaped, coded = _patterns(key)
    if any(sign in text for sign in "\\%&+="):
        text = escaped.sub(MARK, text)
    return coded.sub(MARK, text)


@lru_cache(maxsize=64)
def _patterns(key: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    data = key.encode("utf-8", "surrogateescape")
    coded = ["[\\s:_-]?".join(f"(?i:{byte:02x})" for byte in data)]
    for before in range(3):
        text = b64encode(bytes(before) + data).decode().rstrip("=")
        core = text[(0, 2, 3)[before] : len(text) - ((before + len(data)) % 3 != 0)]
        coded.append(_BETWEEN.join(_IN_BASE64.get(sign, sign) for sign in core))
    return re.compile(_escaped_pattern(key)), re.compile("|".join(coded))


_BETWEEN = r"(?:\s|\\+[nr])*"
"""Where a text in base64 is broken into lines."""
_IN_BASE64 = {"+": r"(?:[+-]|%2[Bb])", "/": r"(?:[/_]|\\+/|%2[Ff])"}
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\x1b": "e"}


_BACKSLASH = r"\\{1,64}+(?:u005[cC]|x5[cC]|134)|\\|%(?:25){0,8}5[cC]|&(?:amp;){0,8}#(?:92|[xX]5[cC]);"


def _escaped_pattern(key: str) -> str:
    """A pattern of the key in which each character may be escaped as in JSON, URLs, HTML, C or Python.

    Backslashes are taken as they come, without going back: hostile texts are searched in linear time.
    """
    parts: list[str] = []
    for run in re.findall(r"\\+|[^\\]", key):
        is_first, is_after_run = not parts, bool(parts) and parts[-1].endswith("+")
        if run[0] == "\\":
            start = r"(?<!\\)" if is_first else ""
            parts.append(rf"{start}(?:{_BACKSLASH}){{{len(run)},}}+")
        else:
            begin = r"\\{0,64}+" if is_after_run else r"(?<!\\)\\{1,64}+" if is_first else r"\\{1,64}+"
            parts.append(_character_pattern(run, begin))
    return "".join(parts)


def _character_pattern(character: str, begin: str) -> str:
    """Pattern of one character of a key: itself or an escape; `begin` is what backslashes begin one."""
    code = ord(character)
    data = character.encode("utf-8", "surrogateescape")
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    named = f"|{re.escape(_LETTERS.get(character, character))}" if not character.isalnum() else ""
    forms = [
        re.escape(character),
        begin + "(?:" + r"\\{1,64}+".join(f"u(?i:{pair})" for pair in pairs)
        + rf"|u\{{0{{0,6}}(?i:{code:x})\}}|U(?i:{code:08x})|"
        + r"\\{1,64}+".join(f"x(?i:{byte:02x})" for byte in data) + "|"
        + r"\\{1,64}+".join(f"{byte:03o}" for byte in data)
        + (f"|x(?i:{code:02x})" if code < 256 else "") + f"{named})",
        "".join(f"%(?:25){{0,8}}(?i:{byte:02x})" for byte in data),
        f"&(?:amp;){{0,8}}(?:#0{{0,6}}{code}|#[xX]0{{0,6}}(?i:{code:x})|{codepoint2name.get(code, '#')});",
    ]  # fmt: skip
    if code < 256:
        forms.append(f"%(?:25){{0,8}}(?i:{code:02x})")
    if character == " ":
        forms.append(r"\+")
    if 0xD800 <= code < 0xE000:  # a byte that is not text
        forms.append("\N{REPLACEMENT CHARACTER}")
    return f"(?:{'|'.join(forms)})"


def _has_any(bare: str, windows: tuple[str, ...]) -> bool:
    return any(window in bare for window in windows)


def _is_secret(length: int, spelling: str, plain: str) -> bool:
    """True if so long a part tells enough of the key; hex takes twice as many characters for it."""
    return length >= min(FRAGMENT * len(spelling) // len(plain), len(spelling))


_ESCAPED = re.compile(
    r"""
      \\{1,16} (?: u(?!00)[0-9a-f]{4}
        | u\{?0{0,6}(?P<u>[0-9a-f]{2})\}? | x(?P<x>[0-9a-f]{2}) | (?P<o>[01][0-7]{2}) | [nrtbfv0"'/\\] )
    | %(?:25){0,8}(?P<p>[0-9a-f]{2})
    | &(?:amp;){0,8}\#(?: x0{0,6}(?P<h>[0-9a-f]{2}) | 0{0,6}(?P<d>[0-9]{2,3}) );
    | &[a-z]{2,8};
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BARE = re.compile(rf"{_ESCAPED.pattern} | [a-z0-9]", re.VERBOSE | re.IGNORECASE | re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9]+")
# An end, perhaps in the middle of an escape, or a sign that something was left out.
_CUT = re.compile(
    r"""(?: \\+u?[0-9a-f]{0,3} | %[0-9a-f]? | &\#?x?[0-9a-f]{0,3} )? [^A-Za-z0-9]* \Z
    | [^A-Za-z0-9]{0,4} (?: … | \.\.\. | \*\* | <[0-9,]+\ more> | \[cut | ",?\ *\n?\ *\[cut )""",
    re.VERBOSE | re.IGNORECASE,
)


@lru_cache(maxsize=16)
def _spellings(key: str) -> tuple[str, ...]:
    """The letters and digits of the key, and of its encodings; a part of a longer text is encoded in three ways."""
    plain = _bare(key)
    if len(plain) < _LEAST:
        return ()
    data = key.encode("utf-8", "replace")
    coded = [data.hex(), b32encode(data).decode().rstrip("=")[:-1], key[::-1]]
    for before in range(3):
        text = b64encode(bytes(before) + data).decode().rstrip("=")
        coded.append(text[(0, 2, 3)[before] : len(text) - ((before + len(data)) % 3 != 0)])
    return (plain, *(bare for each in coded if len(bare := _OTHER.sub("", each).lower()) >= _LEAST))


@lru_cache(maxsize=16)
def _windows(spellings: tuple[str, ...]) -> tuple[str, ...]:
    """Pieces of which each long enough part of a spelling has one."""
    return tuple(
        each[at : at + WINDOW] for each in spellings for at in range(0, len(each) - WINDOW + 1, WINDOW)
    )


def _bare(text: str) -> str:
    """The letters and digits of `text` in lower case, with escapes decoded."""
    decoded = _ESCAPED.sub(_character, text) if any(sign in text for sign in "\\%&") else text
    return _OTHER.sub("", decoded).lower()


def _character(escaped: re.Match[str]) -> str:
    for group, base in (("u", 16), ("x", 16), ("o", 8), ("p", 16), ("h", 16), ("d", 10)):
        if digits := escaped[group]:
            return chr(int(digits, base))
    return ""


def _mapped(text: str) -> tuple[str, array[int], array[int]]:
    """Like `_bare`, with the place of each character in `text`."""
    kept: list[str] = []
    starts, ends = array("Q"), array("Q")
    for found in _BARE.finditer(text):
        character = found[0] if len(found[0]) == 1 else _character(found)
        if character.isascii() and character.isalnum():
            kept.append(character.lower())
            starts.append(found.start())
            ends.append(found.end())
    return "".join(kept), starts, ends


def _found(bare: str, spelling: str) -> Iterator[tuple[int, int]]:
    """The parts of `spelling` in `bare`, each as far as it goes."""
    for at in range(0, len(spelling) - WINDOW + 1, WINDOW):
        window, begin = spelling[at : at + WINDOW], 0
        while (hit := bare.find(window, begin)) >= 0:
            first, last = hit, hit + WINDOW
            while first > 0 and hit - first < at and bare[first - 1] == spelling[at - (hit - first) - 1]:
                first -= 1
            while (
                last < len(bare)
                and at + last - hit < len(spelling)
                and bare[last] == spelling[at + last - hit]
            ):
                last += 1
            yield first, last
            begin = last


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        if end <= done:
            continue
        parts += [text[done:start], MARK] if start >= done else []
        done = end
    return "".join([*parts, text[done:]])
