"""Name the walls around commands, from the strongest to none. Pure."""

from __future__ import annotations

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
