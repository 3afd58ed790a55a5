"""Runners of two machines lose nothing to stalls, clocks, sleep and death, in thousands of orders."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import TURN
from tests.engine.conftest import Lab
from tests.model.rules import SECOND
from tests.model.simulation import Simulation

EXAMPLES = int(os.environ.get("LCP_TEST_EXAMPLES") or 5)
SEED = int(os.environ.get("LCP_TEST_SEED") or TURN % 100_000)


@pytest.fixture(params=["sqlite_copy_url", "emptied_postgres_url"], ids=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database without rows, which all examples use."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def clock() -> list[int]:
    return [1_000_000_000 * SECOND]


@pytest.fixture
def labs(database_url: str, tmp_path: Path, clock: list[int]) -> Iterator[list[Lab]]:
    """An engine for each of two machines."""
    labs = [Lab(database_url, tmp_path, clock=lambda: clock[0]) for _ in range(2)]
    yield labs
    for lab in labs:
        lab.engine.close()


def test_nobody_alive_is_robbed_and_nobody_dead_keeps_a_job(
    labs: list[Lab], clock: list[int], tmp_path: Path
) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEED, SEED + EXAMPLES):
        example = Simulation(labs, clock, tmp_path, seed)
        try:
            example.run()
            example.teardown()
        except BaseException as error:
            error.add_note(
                f"repeat it with LCP_TEST_SEED={seed} LCP_TEST_EXAMPLES=1, at {example.time:.2f} s"
            )
            raise
        counts.update(example.counts)
    found = ", ".join(f"{number} {what}" for what, number in counts.items())
    sys.stdout.write(f"seeds {SEED} to {SEED + EXAMPLES - 1}: {found}\n")
