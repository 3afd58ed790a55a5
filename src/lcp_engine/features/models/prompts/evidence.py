"""Find the lines of texts that are likely to answer a goal: those that share words with it (pure).

A small model answers from what it read last; a search by words costs it nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

MOST_LINES = 2000
"""Of a text, from its beginning: more are not searched."""


@dataclass(frozen=True)
class Line:
    """A line of a text, with how much speaks for it."""

    source: str
    number: int
    text: str
    weight: float


def telling_lines(goal: str, texts: Mapping[str, str], most: int) -> list[Line]:
    """The lines that are likely to answer the goal, the best last: at most `most` of each of `texts`."""
    found: list[Line] = []
    for source, text in texts.items():
        found += sorted(_weighed(goal, source, text), key=lambda line: (-line.weight, line.number))[:most]
    return sorted(found, key=lambda line: (line.weight, -line.number))


WITHOUT_BLANKS = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
"""Letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese, which are written without blanks between words."""


def is_english(text: str) -> bool:
    """True if a goal has a word that English has and its neighbours have not. Of another language no word counts."""
    return _ENGLISH.search(text) is not None


_ENGLISH = re.compile(
    r"(?i)\b(?:and|are|does|did|each|every|files?|from|how|its|say|that|the|their|there|these|this|what|where|which|who"
    r"|whose|why|with)\b"
)


def is_common(word: str) -> bool:
    """True if a word of a goal, in small letters, says nothing about what is asked, as far as it is English."""
    return _stem(word) in _COMMON


def _weighed(goal: str, source: str, text: str) -> Iterator[Line]:
    """The lines of a text that say something. Each gets part of the weight of the line above, its likely subject."""
    lines = text.splitlines()[:MOST_LINES]
    stems = [set(_stems(line)) for line in lines]
    often = Counter(stem for line in stems for stem in line)
    # The name of a file is in the goal because it is to be read, and not what is asked.
    asked = [stem for stem in dict.fromkeys(_stems(goal)) if stem not in {*_COMMON, *_stems(source)}]
    wants_number, wants_name = _ASKS_NUMBER.search(goal), _ASKS_NAME.search(goal)
    above = 0.0
    for number, (line, found) in enumerate(zip(lines, stems, strict=True)):
        if len(_SAYING.findall(line)) < 2:
            continue
        own = sum(_match(stem, found, often) for stem in asked)
        weight = own + _BELOW * above + _FIRST / (1 + number)
        weight += _FITS if wants_number and _NUMBER.search(line) else 0
        weight += _FITS if wants_name and _NAME.search(line) else 0
        yield Line(source, number, line.strip(), weight)
        above = own


def _match(stem: str, found: set[str], often: Mapping[str, int]) -> float:
    """Weight of the fact that a line has this stem of the goal: the less, the more lines have it."""
    if stem in found:
        return 1 / sqrt(often[stem])
    is_alike = len(stem) >= _ALIKE and any(
        len(other) >= _ALIKE and (other.startswith(stem[:5]) or stem.startswith(other[:5])) for other in found
    )
    return _RELATED if is_alike else 0


_BELOW, _FIRST, _FITS, _RELATED, _ALIKE = 0.6, 0.2, 0.35, 0.4, 4
_SAYING = re.compile(r"\w")
_NUMBER = re.compile(r"\d")
_NAME = re.compile(r"\b[A-Z]\w+ (?:[A-Z]\. )?[A-Z]\w+")
_ASKS_NUMBER = re.compile(
    r"(?i)\b(?:how (?:many|much|long|often|old|large|far)|when|until|versions?|port|number|price|costs?|date|year)\b"
)
_ASKS_NAME = re.compile(r"(?i)\b(?:who|whom|whose|author|maintainer)\b")
_PARTS = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)*")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ENDINGS = ("ing", "ies", "es", "ed", "s", "er")


def _stems(text: str) -> Sequence[str]:
    return [_stem(word) for word in _PARTS.findall(_HUMP.sub(" ", text).lower())]


def _stem(word: str) -> str:
    """The word without a usual English ending, in American spelling."""
    word = word.replace("licence", "license")
    return next(
        (word[: -len(end)] for end in _ENDINGS if word.endswith(end) and len(word) >= len(end) + 3), word
    )


_COMMON = frozenset(
    _stems(
        "a action an analysis and answer are as at be by complete describe did do does end explain file files for from "
        "has have how if in is it its list many me mission much of on or read result say see tell that the then this "
        "to under was what which who whom with"
    )
)
"""Words of goals that say nothing about what is asked."""
