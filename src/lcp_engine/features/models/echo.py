"""Tell an answer from an echo, which repeats what its author was told and adds nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RUN = 4
"""Words in a row that are compared; a shorter text is compared as a whole, with the goal and `<what to fill in>`."""
_LEAST_REPEATED = 0.5
_MOST_NEW = 0.07
"""Measured on the texts of tests/features/models/core/test_echo.py. Of an answer at most 0.3 of the runs are in what
was told, or at least 0.09 of the words are new. Of an echo of a small model at least 0.5 of the runs are, and at most
0.07 of the words are new."""
_LEAST_LOOPED = 8
_MOST_DISTINCT = 0.25
"""Of the runs of a text of at least `_LEAST_LOOPED` words, below which it says the same again and again."""
_LEAST_WORDS, _LEAST_ROUNDS = 4, 3
"""How often a word, or several, are said in a row by a text that says little else."""
_LEAST_BEGUN, _MOST_OF_ROUND = 6, 0.8
"""Words, and part, of the second round in a text that says nothing else and ends within it."""
_LONGEST_ROUND, _END = 60, 400
"""Words of a round, and words or characters of the end that is looked at."""

_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
"""Words; those of Chinese and Japanese are not separated, so that each character is one."""
_HEX = re.compile(r"[0-9a-f]+")
# An OID begins with 0, 1 or 2, an address has four numbers.
_NO_NUMBER = re.compile(r"(?<![\w.])(?:[3-9]|\d{2,})(?:\.\d+)+?((?:\.\d+){1,3}?)\1{3,}\W*\Z")
_STUTTER = re.compile(r"(?![0-9A-Fa-f:.]+\Z|[-=|*_~:#^+\s]+\Z)(\S{1,8}?)\1{7,}\s*\Z")
_FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1`*[ ]*$", re.MULTILINE | re.DOTALL)
_TO_FILL = re.compile(r"<([^<>\n]+)>")
_QUOTED = re.compile(r'"[^"\n]*"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»')


@dataclass(frozen=True)
class Told:
    """What the author of a text was told: the goal, and instructions that may repeat the goal.

    What either has between fences or in quotation marks is data, which an answer may repeat. `is_done`: the goal was
    worked on, so that an answer may say in its words that it is reached.
    """

    goal: str
    instructions: str = ""
    is_done: bool = False


def is_echo(text: str, told: Told) -> bool:
    """True if half of the runs of four words of a text are in what its author was told, and next to no word is new."""
    said, goal = words_of(text), words_of(_without_data(told.goal))
    if len(said) < _RUN:
        return bool(said) and (said in map(words_of, _TO_FILL.findall(told.instructions)) or said == goal)
    instructions = words_of(_without_data(told.instructions))
    known = _runs(instructions) | _runs(goal)
    if told.is_done:
        known -= _runs(goal)
    runs = [tuple(said[at : at + _RUN]) for at in range(len(said) - _RUN + 1)]
    repeated = sum(run in known for run in runs)
    vocabulary = {*goal, *instructions}
    new = sum(word not in vocabulary for word in said)
    return repeated >= _LEAST_REPEATED * len(runs) and new <= _MOST_NEW * len(said)


def is_loop(text: str) -> bool:
    """True if a text says the same few words again and again, as a model does that has lost its way.

    Equal numbers in a row are a finding, unless they make one number that is neither an address nor an OID.
    """
    said = words_of(text)
    runs = len(said) - _RUN + 1
    if len(said) >= _LEAST_LOOPED and len(_runs(said)) <= _MOST_DISTINCT * runs:
        return True
    end = text[-_END:]
    stutter = _STUTTER.search(end)
    if _NO_NUMBER.search(end) or (stutter and 2 * len(stutter[0]) >= len(text.strip())):
        return True
    parts = _PART.findall(text.casefold())[-_END:]
    return any(_ends_round(parts, period) for period in range(1, min(len(parts) - 1, _LONGEST_ROUND) + 1))


def _ends_round(said: Sequence[str], period: int) -> bool:
    """True if the last `period` words, one of which is more than a number, came before again and again."""
    end, repeated = len(said) - 1, 0
    if all(map(_HEX.fullmatch, said[end - period : end])):
        return False
    # The last word may have been cut off.
    while repeated + period <= end and (
        said[end - repeated] == said[end - repeated - period]
        or (repeated == 0 and said[end - period].startswith(said[end]))
    ):
        repeated += 1
    length = repeated + period
    if length == len(said) and repeated % period and period > 1:
        return repeated >= max(_LEAST_BEGUN, _MOST_OF_ROUND * period)
    least = _LEAST_WORDS if period == 1 else max(_LEAST_ROUNDS * period, _LEAST_LOOPED)
    return length >= least and 2 * length >= len(said)


def words_of(text: str) -> list[str]:
    """The words of a text in small letters."""
    return _WORD.findall(text.casefold())


def without_fences(text: str) -> str:
    """A text without what is between fences of backticks."""
    return _FENCED.sub("\n", text)


def _without_data(text: str) -> str:
    return _QUOTED.sub(" ", without_fences(text))


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)}
