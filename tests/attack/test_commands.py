from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.attack.commands import attacks, by_a_naive_runner, by_the_engine, leaks
from tests.walls import EACH_WALL, ground_behind

from lcp_engine.core.mission.spec import Commands
from lcp_engine.core.programs.walls import Step
from lcp_engine.features.programs.run_command import Surroundings, run_behind_wall
from lcp_engine.features.programs.wall.programs import Ended, Program
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.sandbox.root import Root

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


@EACH_WALL
@pytest.mark.parametrize("place", [".", "$HOME"])
def test_room_on_the_disk_is_bounded_wherever_a_command_writes(
    tmp_path: Path, walls: Sequence[Step], place: str
) -> None:
    def bounded(root: Root, program: Program) -> Ended:
        return by_the_engine(root, replace(program, bounds=replace(program.bounds, written=4_000_000)))

    script = f"cd {place}; head -c 8000000 /dev/zero > big; sleep 60"
    (tmp_path / "root").mkdir()
    with Root(tmp_path / "root") as root:
        access = RootAccess(root, lambda path: True, ground=ground_behind(walls[0], tmp_path / "wall"))
        ended = run_behind_wall(["sh", "-c", script], Surroundings(access, Commands(), (), bounded)).ended
    assert ended == "it wrote more than 4,000,000 bytes, and was stopped"
