from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.attack.commands import attacks, by_a_naive_runner, by_the_engine, leaks
from tests.walls import NEEDS_LANDLOCK

pytestmark = [
    pytest.mark.proof,
    NEEDS_LANDLOCK,
]
ATTACKS = dict(attacks())


@pytest.mark.parametrize("build", ATTACKS.values(), ids=ATTACKS)
def test_a_command_reads_nothing_outside_and_nothing_denied(build: Callable[[Path], Sequence[str]]) -> None:
    assert leaks(by_the_engine, build) == []


def test_a_runner_that_opens_too_much_is_found_out() -> None:
    assert leaks(by_a_naive_runner, ATTACKS["#!/bin/sh in run.sh"])
