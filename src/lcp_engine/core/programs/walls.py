"""Name the walls around commands, from the strongest to none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, TypeAlias

WallName: TypeAlias = Literal["overlay", "copy", "landlock"]


class Step(StrEnum):
    """Walls around commands, from the strongest to none."""

    OVERLAY = "overlay"
    """Namespaces; the root at its own path, below a directory for what the program changes."""
    COPY = "copy"
    """Namespaces; a copy of the root at its path."""
    LANDLOCK = "landlock"
    """A copy of the root elsewhere; Landlock and seccomp."""
    NONE = "none"
    """No program can be confined."""


WALLS = (Step.OVERLAY, Step.COPY, Step.LANDLOCK)


def walls_for(named: Sequence[str] | None, *, is_required: bool) -> tuple[Step, ...]:
    """Walls that commands may run behind: those that are named; where isolation `is_required`, else the strongest."""
    if named is not None:
        return tuple(map(Step, named))
    return (Step.OVERLAY,) if is_required else WALLS
