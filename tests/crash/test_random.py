"""Kill processes and cut the power at random instants; `make crash` and `make soak` do more of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lcp_engine.sandbox.system.landlock import Isolation, isolates

pytestmark = pytest.mark.proof

PROJECT = Path(__file__).resolve().parent.parent.parent


def _run(tool: str, *given: str) -> dict[str, object]:
    said = subprocess.run(
        [sys.executable, "-m", f"tests.crash.{tool}", *given],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
    )
    assert said.stdout, said.stderr
    found: dict[str, object] = json.loads(said.stdout)
    assert (said.returncode, found["problems"]) == (0, [])
    return found


def test_runners_that_are_killed_at_random_lose_nothing_and_do_nothing_twice(
    database_url: str, tmp_path: Path
) -> None:
    found = _run("kills", database_url, f"{tmp_path}", "--kills", "20")
    assert (found["kills"], found["lost"], found["twice"]) == (20, 0, 0)


def test_helpers_that_are_killed_ended_and_frozen_cost_no_job(database_url: str, tmp_path: Path) -> None:
    if not isolates(Isolation.AUTO):
        pytest.skip("this kernel has no Landlock")
    found = _run("kills", database_url, f"{tmp_path}", "--kills", "15", "--helpers")
    assert (found["kills"], found["lost"], found["twice"]) == (15, 0, 0)
    assert sum(int(str(found.get(name, 0))) for name in ("SIGKILL", "SIGTERM", "SIGSTOP")) > 0


def test_sixteen_runners_share_a_database_while_they_are_killed(database_url: str, tmp_path: Path) -> None:
    found = _run("kills", database_url, f"{tmp_path}", "--kills", "3", "--runners", "16", "--every", "1")
    assert (found["kills"], found["lost"], found["twice"]) == (3, 0, 0)


def test_a_torn_image_of_a_database_holds_what_was_acknowledged(tmp_path: Path) -> None:
    assert _run("torn", f"{tmp_path}", "--images", "3")["images"] == 15
