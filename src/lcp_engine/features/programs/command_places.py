"""Remove what commands of missions left beside their roots, once nothing needs it (R32)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lcp_engine.features.programs.wall.steps import is_trial
from lcp_engine.features.programs.wall.workspace import is_held, remove_abandoned_runs, remove_unheld
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.store.changes import left_open
from lcp_engine.store.db.database import Database
from lcp_engine.store.missions import is_over, status_of

TRIAL_SECONDS = 3600.0
"""Age from which a trial of the wall is one of a process that was killed: it takes a few seconds."""


def remove_walls(database: Database, directory: Path | None) -> None:
    """Remove what nothing needs of the places where missions' commands work; what a command works in stays.

    Needed are those of missions that go on, and of those with changes that an interrupted command left to be made.
    """
    if directory is None:
        return
    for place in _places(directory):
        with suppress(OSError):
            if _why_left(database, int(place.name)) is not None:
                remove_unheld(place)
            elif not _has_open_changes(database, int(place.name)):
                remove_abandoned_runs(place)
    for place in _old_trials(directory):
        remove_tree(place)


def left_over_walls(database: Database, directory: Path) -> Iterator[tuple[int, Path, str]]:
    """Places of missions that need none and where no command runs: each with its mission, and why it is left over."""
    for place in _places(directory):
        why = _why_left(database, int(place.name))
        if why is not None and not is_held(place):
            yield int(place.name), place, why


def _places(directory: Path) -> list[Path]:
    try:
        return sorted(place for place in directory.iterdir() if place.name.isascii() and place.name.isdigit())
    except OSError:
        return []


def _why_left(database: Database, mission_id: int) -> str | None:
    """Reason why a mission needs no place any more; None if it does."""
    status, over = database.read(lambda tx: (status_of(tx, mission_id), is_over(tx, mission_id)))
    if status is None:
        return "whose mission is not in the database"
    return "whose mission has ended" if over else None


def _has_open_changes(database: Database, mission_id: int) -> bool:
    return any(change.mission_id == mission_id for change in database.read(left_open))


def _old_trials(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        for place in directory.iterdir():
            with suppress(OSError):
                if is_trial(place) and place.lstat().st_mtime < time.time() - TRIAL_SECONDS:
                    yield place
