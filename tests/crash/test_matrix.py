"""Nothing is lost or done twice: missions that are killed at every kind of point end as if they had not been.

`make crash` tries every point; this is every 37th, from one on that the commit chooses.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import TURN, sqlite_url
from tests.walls import NEEDS_OVERLAY

from lcp_engine.store.db.json_text import JsonObject

pytestmark = pytest.mark.proof

PROJECT = Path(__file__).resolve().parent.parent.parent


def test_a_mission_that_is_killed_at_any_point_ends_as_if_it_had_not_been(
    database_url: str, tmp_path: Path
) -> None:
    first = str(TURN % 37)
    runs, undisturbed = told_by(database_url, f"{tmp_path}", "--first", first, "--step", "37")
    assert undisturbed == ["work", "plan", "undo", "stage", "limit"]
    assert len(runs) - len(undisturbed) >= 9


@NEEDS_OVERLAY
@pytest.mark.turns(3)
def test_a_mission_that_is_killed_around_a_command_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Every 127th point behind each wall; what a command changed is merged once, or dropped as a whole."""
    first = str(1 + TURN % 127)
    url = sqlite_url(tmp_path)
    runs, undisturbed = told_by(url, f"{tmp_path}", "--walls", "--first", first, "--step", "127")
    assert undisturbed == [f"commands behind {wall}" for wall in ("overlay", "copy", "landlock")]
    assert len(runs) - len(undisturbed) >= 4


def test_a_request_whose_server_is_killed_is_done_once_and_answered_by_the_next(
    database_url: str, tmp_path: Path
) -> None:
    """Every 41st point of launches, decisions, answers and undos over HTTP."""
    first = str(1 + TURN % 41)
    runs, _ = told_by(database_url, f"{tmp_path}", "--first", first, "--step", "41", tool="requests")
    assert len(runs) >= 2


def told_by(*arguments: str, tool: str = "matrix") -> tuple[list[JsonObject], list[JsonValue]]:
    """The runs of the matrix, none of which has a problem, and the stories that it told undisturbed."""
    command = [sys.executable, "-m", f"tests.crash.{tool}", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert said.returncode == 0, said
    runs: list[JsonObject] = [json.loads(line) for line in said.stdout.splitlines()]
    assert [run for run in runs if run["problems"]] == [], said.stderr
    return runs, [run["story"] for run in runs if run["point"] == "undisturbed"]
