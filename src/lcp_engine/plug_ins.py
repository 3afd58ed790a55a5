"""Where this interpreter finds packages, and what installed ones offer to the engine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def offered_in(group: str) -> Sequence[EntryPoint]:
    """The entry points of a group. A process opens all packages on its path for that, and does it once."""
    return _read(group, tuple(sys.path))


@lru_cache(maxsize=2)
def _read(group: str, path: tuple[str, ...]) -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points  # slow to import

    return tuple(entry_points(group=group))


def import_paths(*, needs_here: bool = False) -> list[str]:
    """The directories that this interpreter imports from, without the current directory unless it `needs_here`."""
    hidden = None if needs_here else Path.cwd()
    return [place for place in sys.path if Path(place).is_absolute() and Path(place) != hidden]
