"""Tell which changes of a file stand, and which of them a later one took back (pure).

What a file went through is a list of changes. An undo names the change that it takes back, and with it everything
that the file went through since: afterwards stands what stood before that change. So an undo of an undo brings back
what stood before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Effect(NamedTuple):
    """An applied change. `undoes` is the one that it takes back, None for a change of its own."""

    id: int
    mission_id: int
    job_id: int
    file: str
    undoes: int | None


_Chain: TypeAlias = "tuple[Effect, _Chain] | None"
"""What stands, the newest first. Chains share their ends: the state before each change costs nothing to keep."""


@dataclass
class Timeline:
    """What files went through. `last` is the last effect on a file, `undone_by` who took an effect back."""

    last: dict[str, Effect] = field(default_factory=dict)
    undone_by: dict[int, Effect] = field(default_factory=dict)
    _standing: dict[str, _Chain] = field(default_factory=dict)
    _before: dict[int, _Chain] = field(default_factory=dict)
    _after: dict[int, _Chain] = field(default_factory=dict)
    _undone: dict[int, int] = field(default_factory=dict)

    def add(self, effect: Effect) -> None:
        """The next effect, in the order of ids."""
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
        """The changes of their own that stand, the oldest first."""
        return list(_walk(self._standing.get(file)))[::-1]

    def is_as_after(self, effect: Effect) -> bool:
        """Whether its file is as `effect` left it: untouched since, or brought back to that."""
        return self._standing.get(effect.file) is self._after[effect.id]

    def _take_back(self, effect: Effect, before: set[int], after: set[int]) -> None:
        assert effect.undoes is not None
        for gone in before - after:
            self.undone_by[gone] = effect
        for back in after - before:
            self.undone_by.pop(back, None)
        self.undone_by[effect.undoes] = effect
        # What that one had taken back before stands again.
        earlier = self._undone.get(effect.undoes)
        if earlier is not None:
            self.undone_by.pop(earlier, None)
        self._undone[effect.id] = effect.undoes


def timeline(effects: Iterable[Effect]) -> Timeline:
    """What files went through, from all applied changes of theirs in the order of ids."""
    made = Timeline()
    for effect in effects:
        made.add(effect)
    return made


def _walk(chain: _Chain) -> Iterator[Effect]:
    while chain is not None:
        effect, chain = chain
        yield effect
