"""Each wall around commands holds, and lacks, what the table says of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.parity.walls import FACTS, Ground
from tests.walls import EACH_WALL

from lcp_engine.core.programs.walls import Step


@pytest.mark.proof
@EACH_WALL
def test_a_wall_is_as_the_table_says(walls: Sequence[Step], tmp_path: Path) -> None:
    found, stated = {}, {}
    facts = [fact for fact in FACTS if os.geteuid() == 0 or not fact.of_root]
    for number, fact in enumerate(facts):
        ground = Ground(tmp_path / str(number), walls[0])
        ground.place.mkdir()
        ground.make()
        found[fact.about], stated[fact.about] = fact.tries(ground), fact.finds[walls[0]]
    assert found == stated
