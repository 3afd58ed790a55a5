"""The step of the wall that commands run behind on this machine."""

from __future__ import annotations

from typing import Literal

NEEDS_OVERLAY = "needs the overlay wall"


def has_overlay_wall() -> bool:
    """True if a command sees the root at its own path, over an overlay."""
    return step() == "overlay"


def step() -> Literal["overlay", "copy", "landlock"]:
    """The step that is used here: an overlay, a working copy at the path of the root, or Landlock and seccomp alone."""
    return "landlock"
