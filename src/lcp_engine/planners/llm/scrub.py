"""Remove a key from what a server sent, also one that is spelled in another way, split, or cut off. Pure.

A server that wants to hide a key it was sent can always do so. What servers do in errors and replies is found: echoes
of the key as it is, and in common encodings.
"""

from __future__ import annotations

import re
from array import array
from base64 import b32encode, b64encode
from collections.abc import Iterator, Mapping
from functools import lru_cache

MARK = "…"
WINDOW = 8
"""As much of a key's beginning is removed where a text was cut."""
FRAGMENT = 16
"""As much of a key is removed wherever it is."""
_LEAST = 12
"""A key with fewer letters and digits may be a word of a text, as `lm-studio` is: only the exact key is removed."""


def scrubbed(text: str, key: str) -> str:
    """`text` without `key`: as it is, in other case, escaped, in base64 or hex, split by other characters, or cut."""
    text = text.replace(key, MARK)
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


def _has_any(bare: str, windows: tuple[str, ...]) -> bool:
    return any(window in bare for window in windows)


def _is_secret(length: int, spelling: str, plain: str) -> bool:
    """Whether so long a part tells enough of the key; hex takes twice as many characters for it."""
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
