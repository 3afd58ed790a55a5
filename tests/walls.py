"""Choose the wall that the commands of a test run behind; say which of them this machine does not have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lcp_engine.core.programs.walls import WALLS, Step
from lcp_engine.features.programs.wall.steps import Found, step_here
from lcp_engine.features.programs.wall.workspace import Ground

REQUIRED = "LCP_TEST_REQUIRE_WALL" in os.environ
"""A wall that does not hold here is a failure of the tests that need it, and not skipped."""
NEEDS_OVERLAY = pytest.mark.behind(Step.OVERLAY)
NEEDS_NAMESPACES = pytest.mark.behind(Step.COPY)
NEEDS_LANDLOCK = pytest.mark.behind(Step.LANDLOCK)
"""For what also holds where there are no namespaces."""
EACH_WALL = pytest.mark.parametrize(
    "walls",
    [
        pytest.param((Step.OVERLAY,), id="overlay", marks=NEEDS_OVERLAY),
        pytest.param((Step.COPY,), id="copy", marks=[NEEDS_NAMESPACES, pytest.mark.weaker]),
        pytest.param((Step.LANDLOCK,), id="landlock", marks=[NEEDS_LANDLOCK, pytest.mark.weaker]),
    ],
)
"""Runs a test behind each wall, which it gets as `walls`; weaker ones are proofs that take turns."""
AT_ITS_PATH = frozenset({Step.OVERLAY, Step.COPY})
"""Walls behind which the root is at its own path; behind another one nothing can be read there."""


def at_its_path(walls: Sequence[Step], said: str, otherwise: str = "") -> str:
    """The output of a command that uses the path of the root behind the first of `walls`."""
    return said if walls[0] in AT_ITS_PATH else otherwise


def missing(wall: Step) -> str | None:
    """Reason why commands cannot run behind a wall here, in one line; None if they can."""
    found = _found(wall)
    return None if found.step is wall else found.reasons[WALLS.index(wall)]


def ground_behind(wall: Step, place: Path) -> Ground:
    """Ground for a command that a test runs without a mission, whose directory is `place`."""
    return Ground(place, "test", "0-1", _found(wall))


def check_wall(item: pytest.Item) -> None:
    """Skip a test that is marked `behind` a wall which does not hold here, or fail it where each wall has to."""
    for marker in item.iter_markers("behind"):
        why = missing(marker.args[0])
        if why is None:
            continue
        if REQUIRED:
            pytest.fail(why, pytrace=False)
        pytest.skip(why)


@cache
def _found(wall: Step) -> Found:
    with TemporaryDirectory(prefix="lcp-wall-") as place:
        return step_here(Path(place).resolve(), walls=(wall,))
