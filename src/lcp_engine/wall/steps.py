"""Find out how well programs can be confined here: by one trial run in the directories that are used later (R32)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from lcp_engine.core.walls import WALLS, Step
from lcp_engine.errors import LcpError
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.own_places import make_private
from lcp_engine.wall.bubblewrap import NoBubblewrap, find_bubblewrap
from lcp_engine.wall.programs import Bounds, Ended, Program, cannot_confine
from lcp_engine.wall.view import HOME, Bind, Overlay, View

_RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_APP_ARMOR = (
    "AppArmor refuses user namespaces to it (apparmor_restrict_unprivileged_userns); the system's bubblewrap has a "
    "profile that allows them"
)
_TRIAL_SECONDS = 20.0
_NOT_NAMED = "the configuration does not name it (commands_wall)"


@dataclass(frozen=True)
class Found:
    """The strongest step that holds here, and why each stronger one does not."""

    step: Step
    refused: tuple[tuple[Step, str], ...] = ()

    def why_not(self, step: Step) -> str | None:
        """Reason why a step does not hold here; None if it does, or was not tried."""
        return dict(self.refused).get(step)


Run: TypeAlias = Callable[[Program], Ended]
"""Runs a program in a process of its own. Raises `LcpError`: NOT_ISOLATED, FILE_SYSTEM, WORKER_DIED."""

_found: dict[tuple[str, tuple[Step, ...]], Found] = {}
_trying = threading.Lock()


def step_here(place: Path, run: Run, walls: Sequence[Step] = WALLS) -> Found:
    """The strongest of `walls` for programs whose changes are kept in the directory `place`.

    It is found once for each process.
    """
    key = str(place), tuple(walls)
    with _trying:
        known = _found.get(key)
        if known is None:
            known = _found[key] = _try_all(place, run, walls)
        return known


def _try_all(place: Path, run: Run, walls: Sequence[Step]) -> Found:
    refused: list[tuple[Step, str]] = []
    bubblewrap = find_bubblewrap()
    for step in (Step.OVERLAY, Step.COPY):
        if step not in walls:
            refused.append((step, _NOT_NAMED))
            continue
        why = bubblewrap.reason if isinstance(bubblewrap, NoBubblewrap) else _why_not(step, place, run)
        if why is None:
            return Found(step, tuple(refused))
        refused.append((step, why))
    why = cannot_confine() if Step.LANDLOCK in walls else _NOT_NAMED
    if why is None:
        return Found(Step.LANDLOCK, tuple(refused))
    return Found(Step.NONE, (*refused, (Step.LANDLOCK, why)))


def _why_not(step: Step, place: Path, run: Run) -> str | None:
    trial = place / f"trial-{uuid4().hex}"
    try:
        make_private(place)
        trial.mkdir(mode=0o700)
        for name in ("root", "up", "work", "home"):
            (trial / name).mkdir()
        return _try(step, trial, run)
    except OSError as error:
        return f"{error.filename or place}: {error.strerror}"
    finally:
        remove_tree(trial)


def _try(step: Step, trial: Path, run: Run) -> str | None:
    root, home = str(trial / "root"), Bind(str(trial / "home"), HOME, writable=True)
    view = View(binds=[home, Bind(root, root, writable=True)])
    if step is Step.OVERLAY:
        view = View([Overlay(root, [root], str(trial / "up"), str(trial / "work"))], [home])
    program = Program(
        path="/bin/sh",
        arguments=("/bin/sh", "-c", "echo tried > here && mv here there && rm there"),
        directory=root,
        environment={"PATH": os.defpath},
        owned=(),
        view=view,
        bounds=Bounds(seconds=_TRIAL_SECONDS),
    )
    try:
        ended = run(program)
    except LcpError as error:
        said = str(error.failed.details.get("reason") or error.failed.message)
    else:
        if ended.exit_code == 0:
            return None
        said = (
            ended.stderr.decode(errors="replace").strip()
            or f"{ended.stopped or ended.signal or ended.exit_code}"
        )
    return f"{said}. {_APP_ARMOR}" if _is_restricted() else said


def _is_restricted() -> bool:
    try:
        return _RESTRICTED.read_text().strip() == "1"
    except OSError:
        return False
