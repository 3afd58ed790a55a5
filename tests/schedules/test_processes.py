"""Many processes share schedules, and any of them may be killed at any moment."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.store.check import faults_in

TICKING = Path(__file__).with_name("ticking.py")
START = int(datetime(2026, 11, 20, 6, 0, tzinfo=UTC).timestamp()) * SECOND
MINUTE = 60 * SECOND
YEAR = 366 * 24 * 60 * MINUTE
SPEC: dict[str, JsonValue] = {"goal": "Look.", "planner": {"type": "script", "replies": []}}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    with Engine(database_url, clock=lambda: START) as engine:
        yield engine


class Ticking:
    """A process whose time begins at `start`, goes 2000 times as fast as ours, and ends at `until`."""

    def __init__(self, url: str, start: int, *, until: int) -> None:
        command = [sys.executable, str(TICKING), url, str(start), "2000", str(until)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

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
        assert int(stored.next_due_at.timestamp()) * SECOND == expected
        assert stored.missed == sum(missed for _, missed in found)
    assert engine.site.database.read(faults_in) == []
