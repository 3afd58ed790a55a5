"""An undo that is killed at any point, and its own undo, are completed once by whoever comes next (DESIGN.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent


def test_an_undo_that_is_killed_at_any_point_leaves_the_files_as_they_were(
    database_url: str, tmp_path: Path
) -> None:
    drivers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.crash.kill_undo",
                database_url,
                tmp_path / f"{first}",
                f"{first}",
                "2",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )
        for first in (1, 2)
    ]
    said = [driver.communicate() for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], said
    runs = [json.loads(line) for out, _ in said for line in out.splitlines()]
    assert {run["at"]: run["problems"] for run in runs if run["problems"]} == {}, said
    assert sum(run["killed"] for run in runs) > 30
    assert sum(not run["killed"] for run in runs) == 2  # one undisturbed run each, by the same measure
