from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.attack.commands import attacks, by_a_naive_runner, by_the_engine, leaks
from tests.walls import EACH_WALL

from lcp_engine.core.walls import Step

pytestmark = pytest.mark.proof
ATTACKS = dict(attacks())


@pytest.mark.turns(3)
@EACH_WALL
@pytest.mark.parametrize("build", ATTACKS.values(), ids=ATTACKS)
def test_a_command_reads_nothing_outside_and_nothing_denied(
    build: Callable[[Path], Sequence[str]], walls: Sequence[Step]
) -> None:
    assert leaks(by_the_engine, build, walls[0]) == []


@EACH_WALL
def test_a_runner_that_opens_too_much_is_found_out(walls: Sequence[Step]) -> None:
    assert leaks(by_a_naive_runner, ATTACKS["#!/bin/sh in run.sh"], walls[0])
