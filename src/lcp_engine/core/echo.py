"""Tell an answer from an echo, which repeats what its author was told and adds nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RUN = 4
"""Words in a row that are compared; a shorter text is compared as a whole, with the goal and `<what to fill in>`."""
_LEAST_REPEATED = 0.5
_MOST_NEW = 0.07
"""Measured on the texts of tests/core/test_echo.py. Of an answer at most 0.3 of the runs are in what was told, or at
least 0.09 of the words are new. Of an echo of a small model at least 0.5 of the runs are, and at most 0.07 of the words
are new."""
_LEAST_LOOPED = 8
_MOST_DISTINCT = 0.25
"""Of the runs of a text of at least `_LEAST_LOOPED` words, below which it says the same again and again."""

_WORD = re.compile(r"[^\W_]+")
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
    said, goal = _words(text), _words(_without_data(told.goal))
    if len(said) < _RUN:
        return bool(said) and (said in map(_words, _TO_FILL.findall(told.instructions)) or said == goal)
    instructions = _words(_without_data(told.instructions))
    known = _runs(instructions) | _runs(goal)
    if told.is_done:
        known -= _runs(goal)
    runs = [tuple(said[at : at + _RUN]) for at in range(len(said) - _RUN + 1)]
    repeated = sum(run in known for run in runs)
    vocabulary = {*goal, *instructions}
    new = sum(word not in vocabulary for word in said)
    return repeated >= _LEAST_REPEATED * len(runs) and new <= _MOST_NEW * len(said)


def is_loop(text: str) -> bool:
    """True if a text says the same few words again and again, as a model does that has lost its way."""
    said = _words(text)
    runs = len(said) - _RUN + 1
    return len(said) >= _LEAST_LOOPED and len(_runs(said)) <= _MOST_DISTINCT * runs


def without_fences(text: str) -> str:
    """A text without what is between fences of backticks."""
    return _FENCED.sub("\n", text)


def _without_data(text: str) -> str:
    return _QUOTED.sub(" ", without_fences(text))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)}
