"""Find which changes of a file are in effect, and which a later undo reverted. Pure.

The history of a file is a list of changes. An undo names the change that it reverts, and reverts everything since:
afterwards the changes from before that one are in effect. So an undo of an undo restores what was in effect before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class DiskState(StrEnum):
    """State of a file that a mission wrote."""

    AS_WRITTEN = "as_written"
    CHANGED = "changed_since"
    GONE = "gone"


class Effect(NamedTuple):
    """An applied change. `undoes` is the change that it reverts, None for an ordinary one."""

    id: int
    mission_id: int
    job_id: int
    file: str
    undoes: int | None


_Chain: TypeAlias = "tuple[Effect, _Chain] | None"
"""The changes in effect, newest first. Chains share their tails, so that storing one per change is cheap."""


@dataclass
class Timeline:
    """The history of files. `last` is the last effect on a file, `undone_by` the one that reverted an effect."""

    last: dict[str, Effect] = field(default_factory=dict)
    undone_by: dict[int, Effect] = field(default_factory=dict)
    _standing: dict[str, _Chain] = field(default_factory=dict)
    _before: dict[int, _Chain] = field(default_factory=dict)
    _after: dict[int, _Chain] = field(default_factory=dict)
    _undone: dict[int, int] = field(default_factory=dict)

    def add(self, effect: Effect) -> None:
        """Add the next effect, in the order of ids."""
        now = self._standing.get(effect.file)
        self._before[effect.id] = now
        self.last[effect.file] = effect
        if effect.undoes is None:
            self._standing[effect.file] = self._after[effect.id] = (effect, now)
            return
        then = self._before.get(effect.undoes)
        self._standing[effect.file] = self._after[effect.id] = then
        self._take_back(effect, {one.id for one in _walk(now)}, {one.id for one in _walk(then)})

    def standing(self, file: str) -> list[Effect]:
        """The ordinary changes that are in effect, oldest first."""
        return list(_walk(self._standing.get(file)))[::-1]

    def is_as_after(self, effect: Effect) -> bool:
        """True if its file is as `effect` left it: unchanged since, or restored to that."""
        return self._standing.get(effect.file) is self._after[effect.id]

    def _take_back(self, effect: Effect, before: set[int], after: set[int]) -> None:
        assert effect.undoes is not None
        for gone in before - after:
            self.undone_by[gone] = effect
        for back in after - before:
            self.undone_by.pop(back, None)
        self.undone_by[effect.undoes] = effect
        # What that one had reverted is in effect again.
        earlier = self._undone.get(effect.undoes)
        if earlier is not None:
            self.undone_by.pop(earlier, None)
        self._undone[effect.id] = effect.undoes


def timeline(effects: Iterable[Effect]) -> Timeline:
    """The history of files, from all their applied changes in the order of ids."""
    made = Timeline()
    for effect in effects:
        made.add(effect)
    return made


def _walk(chain: _Chain) -> Iterator[Effect]:
    while chain is not None:
        effect, chain = chain
        yield effect
