"""What tests of staged missions, and of kinds that change files, work with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

import pytest
from tests.conftest import POSTGRES, SQLITE
from tests.runner.theatre import Theatre, open_theatre

from lcp_engine.core.programs.walls import Step
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.sandbox.system.landlock import Isolation


class Ground(NamedTuple):
    """What an engine is opened with."""

    url: str
    isolation: Isolation


@pytest.fixture(
    params=[
        pytest.param((SQLITE, Isolation.AUTO), id="confined-sqlite"),
        pytest.param((POSTGRES, Isolation.OFF), id="open-postgres"),
        pytest.param((SQLITE, Isolation.OFF), id="open-sqlite", marks=pytest.mark.proof),
        pytest.param((POSTGRES, Isolation.AUTO), id="confined-postgres", marks=pytest.mark.proof),
    ]
)
def ground(request: pytest.FixtureRequest) -> Ground:
    """A database without rows, and how jobs are isolated: each of both, and together as a proof."""
    url, isolation = request.param
    return Ground(request.getfixturevalue(url), isolation)


@pytest.fixture
def walls() -> Sequence[Step] | None:
    """The walls that commands of the theatre may run behind; None for the strongest that holds."""
    return None


@pytest.fixture
def theatre(ground: Ground, walls: Sequence[Step] | None, tmp_path: Path) -> Iterator[Theatre]:
    with open_theatre(ground.url, ground.isolation, walls) as engine:
        for places in (engine.instance.stages, engine.instance.walls):
            if places is not None:
                rmtree(places, ignore_errors=True)  # of earlier tests that used the same PostgreSQL database
        yield Theatre(engine, tmp_path / "root")
    assert check_database(ground.url) == []
