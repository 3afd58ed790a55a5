"""Nothing lost, nothing twice: a runner is killed at every commit, rename and fsync of a mission (DESIGN.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DRIVER = Path(__file__).with_name("kill_everywhere.py")


def test_a_mission_that_is_killed_at_any_point_ends_as_if_it_had_not_been(
    database_url: str, tmp_path: Path
) -> None:
    drivers = [
        subprocess.Popen(
            [sys.executable, DRIVER, database_url, tmp_path / f"{first}", f"{first}", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for first in (1, 2)
    ]
    said = [driver.communicate() for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], said
    runs = [json.loads(line) for out, _ in said for line in out.splitlines()]
    assert {run["at"]: run["problems"] for run in runs if run["problems"]} == {}, said
    assert sum(run["killed"] for run in runs) > 60
    assert sum(not run["killed"] for run in runs) == 2  # one undisturbed run each, by the same measure
