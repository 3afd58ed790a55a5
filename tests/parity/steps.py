"""The step of the wall that commands run behind on this machine."""

from __future__ import annotations

NEEDS_OVERLAY = "needs the overlay wall"


def has_overlay_wall() -> bool:
    """True if a command sees the root at its own path, over an overlay."""
    return False
