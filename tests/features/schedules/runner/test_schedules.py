"""Many processes share schedules, and any of them may be killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.features.check.store.examination import faults_in

TICKING = Path(__file__).with_name("ticking.py")
KILLED = Path(__file__).with_name("killed.py")
PROJECT = Path(__file__).resolve().parents[4]
DRAIN = PROJECT / "tests" / "runner" / "drain.py"
START = int(datetime(2026, 11, 20, 6, 0, tzinfo=UTC).timestamp()) * SECOND
MINUTE = 60 * SECOND
YEAR = 366 * 24 * 60 * MINUTE
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
SPEC: dict[str, JsonValue] = {"goal": "Look.", "planner": {"type": "script", "replies": [DONE]}}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    with Engine(database_url, clock=lambda: START) as engine:
        yield engine


class Ticking:
    """A process whose time begins at `start`, goes 2000 times as fast as ours, and ends at `until`."""

    def __init__(self, url: str, start: int, *, until: int) -> None:
        given = (TICKING, url, start, 2000, until)
        self._process = Python(*given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def tick(self, count: int) -> int:
        """Its time after it has looked so often."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return int([self._process.stdout.readline() for _ in range(count)][-1])

    def kill(self) -> None:
        self._process.kill()
        _, error = self._process.communicate()
        assert (self._process.returncode, error) == (-signal.SIGKILL, "")

    def finish(self) -> None:
        _, error = self._process.communicate()
        assert (self._process.returncode, error) == (0, "")


def launches(engine: Engine, name: str) -> list[tuple[int, int]]:
    """Due time and missed ones after it, of each mission that was launched, in order."""
    found = []
    for mission in reversed(engine.missions()):
        data = engine.events(mission.id, event="launched")[0]["data"]
        assert isinstance(data, dict)
        if data["schedule"] == name:
            due = datetime.fromisoformat(str(data["due_at"])).timestamp()
            found.append((int(due) * SECOND, int(str(data["missed"]))))
    return found


@pytest.mark.proof
def test_each_due_time_is_launched_or_missed_once_whoever_is_killed(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    for name, every in (("fast", "1m"), ("slow", "7m")):
        engine.add_schedule(name, SPEC, root=tmp_path, every=every, overlap="allow")
    chance, at = random.Random(7), START
    for _ in range(2):
        crew = [Ticking(database_url, at, until=START + YEAR) for _ in range(2)]
        at = max(crew[0].tick(chance.randrange(1, 60)), crew[1].tick(1))
        for process in crew:
            process.kill()
    crew = [Ticking(database_url, at, until=at + 30 * MINUTE) for _ in range(2)]
    for process in crew:
        process.finish()
    for name, length in (("fast", MINUTE), ("slow", 7 * MINUTE)):
        found = launches(engine, name)
        expected = START + length
        for due, missed in found:
            assert due == expected, "launched twice, or lost"
            expected += (missed + 1) * length
        (stored,) = (one for one in engine.schedules() if one.name == name)
        assert stored.next_due_at is not None
        assert int(stored.next_due_at.timestamp()) * SECOND == expected
        assert stored.missed == sum(missed for _, missed in found)
    assert engine.instance.database.read(faults_in) == []


@pytest.mark.proof
def test_runners_that_start_at_once_launch_each_mission_once(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    for n in range(20):
        engine.add_schedule(f"s{n}", SPEC, root=tmp_path, every="1h")
    command = (DRAIN, database_url, '{"until_idle": true, "threads": 2}')
    crew = [Python(*command, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait() for process in crew] == [0, 0, 0]
    missions = engine.missions()
    assert [mission.status for mission in missions] == ["completed"] * 20
    assert sorted(one.mission_id or 0 for one in engine.schedules()) == sorted(one.id for one in missions)
    assert engine.instance.database.read(faults_in) == []


@pytest.mark.parametrize("point", [1, 2])
@pytest.mark.proof
def test_a_death_before_or_after_the_commit_launches_once(
    database_url: str, engine: Engine, tmp_path: Path, point: int
) -> None:
    engine.add_schedule("hourly", SPEC, root=tmp_path, every="1h")
    command = (KILLED, database_url, START + 90 * MINUTE)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]),
    }
    assert Python(*command, point, env=environment).wait() == -signal.SIGKILL
    assert len(engine.missions()) == point - 1
    for _ in range(2):
        assert Python(*command, 0, env=environment).wait() == 0
    assert launches(engine, "hourly") == [(START + 60 * MINUTE, 0)]
    (stored,) = engine.schedules()
    assert stored.next_due_at is not None
    assert int(stored.next_due_at.timestamp()) * SECOND == START + 120 * MINUTE
