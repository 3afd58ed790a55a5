"""Choose what a turn is shown of the memory of its root, within a budget. Pure: equal entries give an equal choice.

The store finds the newest matches of each cue, however many entries there are; here they are ranked by what they
share with the turn, then by importance and age.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from lcp_engine.features.memory.entries import Micros, file_term, tag_term, tidy_path, words_of

MOST_CUES = 24
"""Words that a turn is matched by, the longest first, and as many files and tags."""
MOST_MATCHES = 20
"""Entries that one cue finds, the newest."""
MOST_SHOWN = 20
LONGEST_SHOWN = 1_500
"""Characters of one entry that are shown."""
IMPORTANT = 7
"""From this importance on an entry is shown for its own sake; so are the newest `MOST_RECENT`."""
MOST_RECENT = 3
RELATED = "related to"
"""Stands among the cues for the relation to a chosen entry; a term of an entry has no space."""
_LEAST_WORD = 4
_SAY_NOTHING = frozenset({
    "about", "after", "also", "because", "been", "before", "does", "each", "every", "from", "have", "into", "make",
    "more", "must", "only", "other", "over", "should", "some", "such", "than", "that", "their", "them", "then", "there",
    "these", "they", "this", "those", "under", "until", "were", "what", "when", "where", "which", "while", "will",
    "with", "without", "would", "your",
})  # fmt: skip
_FRAME = 80
_DAY = 86_400 * 1_000_000
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+|[\w-]+\.[A-Za-z]\w{0,9}\b")


class Cue(Enum):
    """What a turn and an entry have in common, and how many points each of it gives."""

    FILE = 40
    TAG = 20
    RELATED = 10
    """A chosen entry names it in its `related_memories`."""
    WORD = 6
    COMMON_WORD = 2


@dataclass(frozen=True)
class Match:
    """An entry that a cue has found, without its text; `size` counts its characters."""

    id: int
    importance: int
    updated_at: Micros
    size: int
    files: tuple[str, ...] = ()


def cues_of(texts: Iterable[str], files: Iterable[str], tags: Iterable[str]) -> dict[str, Cue]:
    """The terms by which a turn looks for entries: its files and those that its texts name, its tags, its words."""
    text = "\n".join(texts)[:_MOST_TEXT]
    paths = dict.fromkeys((*files, *(found[0].removeprefix("./") for found in _PATH.finditer(text))))
    named = [tidy for path in paths if (tidy := tidy_path(path)) is not None][:MOST_CUES]
    words = [word for word in {*words_of(text)} - _SAY_NOTHING if len(word) >= _LEAST_WORD]
    words.sort(key=lambda word: (-len(word), word))
    cues = dict.fromkeys(words[:MOST_CUES], Cue.WORD)
    # A word is the tag of that name, too.
    tag_names = dict.fromkeys(tag.casefold() for tag in tags)
    cues |= dict.fromkeys(map(tag_term, [*tag_names][:MOST_CUES]), Cue.TAG)
    return cues | dict.fromkeys(map(file_term, named), Cue.FILE)


_MOST_TEXT = 20_000


@dataclass(frozen=True)
class Found:
    """What each cue has found, and the important and the newest entries of the root."""

    by_cue: Mapping[str, Sequence[Match]]
    important: Sequence[Match]
    newest: Sequence[Match]

    def without(self, is_left_out: Callable[[Match], bool]) -> Found:
        """The same without some entries."""
        return Found(
            {cue: _rest(many, is_left_out) for cue, many in self.by_cue.items()},
            _rest(self.important, is_left_out),
            _rest(self.newest, is_left_out),
        )


def _rest(matches: Sequence[Match], is_left_out: Callable[[Match], bool]) -> list[Match]:
    return [match for match in matches if not is_left_out(match)]


def choose(found: Found, cues: Mapping[str, Cue], *, now: Micros, characters: int) -> list[int]:
    """The numbers of the entries to show, the best first, in at most so many characters."""
    matches = {
        one.id: one for many in (*found.by_cue.values(), found.important, found.newest) for one in many
    }
    points = dict.fromkeys(matches, 0)
    for term, many in found.by_cue.items():
        cue = Cue.COMMON_WORD if cues[term] is Cue.WORD and len(many) >= MOST_MATCHES else cues[term]
        for one in many:
            points[one.id] += cue.value
    wanted = {number for number, given in points.items() if given > Cue.COMMON_WORD.value}
    wanted |= {one.id for one in (*found.important, *found.newest)}
    ranked = sorted(wanted, key=lambda number: (-points[number] - _weight(matches[number], now), -number))
    return _fitting([matches[number] for number in ranked], characters)


def shown_part(content: str) -> tuple[str, int]:
    """As much of a content as is shown, and how many characters are left out."""
    left_out = max(0, len(content) - LONGEST_SHOWN)
    return content[:LONGEST_SHOWN], left_out


def _weight(match: Match, now: Micros) -> int:
    days = (now - match.updated_at) // _DAY
    recency = 6 if days < 1 else 4 if days < 7 else 2 if days < 30 else 0
    return 3 * match.importance + recency


def _fitting(ranked: Sequence[Match], characters: int) -> list[int]:
    chosen: list[int] = []
    for match in ranked:
        needed = min(match.size, LONGEST_SHOWN) + _FRAME
        if needed <= characters and len(chosen) < MOST_SHOWN:
            characters -= needed
            chosen.append(match.id)
    return chosen
