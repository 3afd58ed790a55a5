"""A runner removes what commands of missions left beside their roots, once nothing needs it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python
from tests.patience import PATIENCE_SECONDS
from tests.runner.conftest import Ground
from tests.runner.theatre import DONE, Theatre, ask, write
from tests.walls import NEEDS_OVERLAY

from lcp_engine.features.programs.command_places import TRIAL_SECONDS, left_over_walls, remove_walls
from lcp_engine.features.programs.wall.workspace import held

pytestmark = NEEDS_OVERLAY
ANY: JsonValue = {"allow": [["sh", "-c", "*"]], "seconds": 100}
AUTO: JsonValue = [{"kinds": ["run_command"], "do": "auto"}]
HELD = ask(write("b2.txt", "b", auto_dispatch=False))


def places(theatre: Theatre) -> list[str]:
    directory = walls(theatre)
    return sorted(place.name for place in directory.iterdir()) if directory.exists() else []


def walls(theatre: Theatre) -> Path:
    directory = theatre.engine.instance.walls
    assert directory is not None
    return directory


def remove(theatre: Theatre) -> None:
    remove_walls(theatre.engine.instance.database, walls(theatre))


def run(script: str) -> JsonValue:
    return ask({"kind": "run_command", "params": {"command": ["sh", "-c", script]}})


def launch(theatre: Theatre, *replies: JsonValue) -> int:
    planner: JsonValue = {"type": "script", "replies": [*replies]}
    spec: dict[str, JsonValue] = {"goal": "Try it.", "planner": planner, "commands": ANY, "policy": AUTO}
    return theatre.engine.launch(spec, root=theatre.root).id


def test_the_place_of_a_mission_goes_when_it_has_ended(theatre: Theatre) -> None:
    theatre.engine.work(until_idle=True, mission_id=launch(theatre, run("echo x > new.txt"), DONE))
    assert places(theatre) == []


def test_the_place_of_a_mission_that_waits_stays(theatre: Theatre) -> None:
    mission = launch(theatre, run("echo x > new.txt"), HELD)
    theatre.engine.work(until_idle=True, mission_id=mission)
    assert theatre.engine.mission(mission).status == "waiting"
    assert places(theatre) == [str(mission)]
    theatre.engine.cancel(mission, by="ada")
    remove(theatre)
    assert places(theatre) == []


def test_nothing_is_removed_while_a_command_runs_there(theatre: Theatre) -> None:
    place = walls(theatre) / "77"
    with held(place):
        remove(theatre)
        assert places(theatre) == ["77"]
        assert [*left_over_walls(theatre.engine.instance.database, walls(theatre))] == []
    ((mission, found, why),) = left_over_walls(theatre.engine.instance.database, walls(theatre))
    assert (mission, found, why) == (77, place, "whose mission is not in the database")
    remove(theatre)
    assert places(theatre) == []


def test_a_trial_of_the_wall_is_removed_once_it_is_old(theatre: Theatre) -> None:
    for name, age in (("trial-old", TRIAL_SECONDS + 60), ("trial-new", 0.0)):
        (walls(theatre) / name / "up").mkdir(parents=True)
        os.utime(walls(theatre) / name, (time.time() - age,) * 2)
    remove(theatre)
    assert places(theatre) == ["trial-new"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_a_killed_runner_left_goes(theatre: Theatre, ground: Ground, goes_on: bool) -> None:
    mission = launch(theatre, run("echo x > new.txt; test -e stop || sleep 90"), HELD)
    code = "import sys; from lcp_engine import Engine; Engine(sys.argv[1]).work(until_idle=True)"
    runner = Python("-c", code, ground.url)
    ends = time.monotonic() + PATIENCE_SECONDS
    runs = walls(theatre) / str(mission) / "runs"
    while not [*runs.glob("*/up/root/new.txt")]:
        assert time.monotonic() < ends
        assert runner.poll() is None
        time.sleep(0.02)
    (left,) = runs.iterdir()
    remove(theatre)
    assert left.exists()
    runner.send_signal(signal.SIGKILL)
    assert runner.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    theatre.write("stop", "")
    if not goes_on:
        theatre.engine.cancel(mission, by="ada")
    theatre.engine.work(until_idle=True)
    assert not left.exists()
    assert places(theatre) == ([str(mission)] if goes_on else [])
