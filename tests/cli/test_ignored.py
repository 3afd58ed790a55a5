"""People are shown what was ignored in a planner's reply: while it runs, afterwards, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import JsonValue
    from tests.cli.conftest import Lcp

JOBS: list[JsonValue] = [
    {"kind": "list_files", "params": {}, "comment": "look", **{f"k{n}": n for n in range(6)}}
]
COMMENT = "new_jobs[0].comment: unknown key, ignored"


@pytest.fixture
def mission(lcp: Lcp) -> Path:
    ask = {"ok": True, "action": "create_followup_jobs", "new_jobs": JOBS}
    return lcp.mission(json.dumps(ask), json.dumps(lcp.complete))


def test_it_is_shown_once_while_the_mission_runs(lcp: Lcp, mission: Path) -> None:
    ran = lcp("run", mission, "--root", "root")
    assert ran.err.count(f"  ignored   {COMMENT}\n") == 1
    assert "  ignored   and 4 more\n" in ran.err
    assert lcp("watch", 1).out.count(COMMENT) == 1


def test_it_is_shown_under_its_turn(lcp: Lcp, mission: Path) -> None:
    lcp("run", mission, "--root", "root", "-q")
    lines = lcp("show", 1).out.splitlines()
    (line,) = [line for line in lines if COMMENT in line]
    assert lines.index(line) == next(n for n, line in enumerate(lines) if "turn 1  agent_plan" in line) + 1
    assert COMMENT in lcp("job", 1).out


def test_it_is_in_json(lcp: Lcp, mission: Path) -> None:
    lcp("run", mission, "--root", "root", "-q")
    (told,) = json.loads(lcp("show", 1, "--json").out)["warnings"]
    assert (told["turn"], told["number"], told["job_id"], told["warnings"][0]) == (1, 1, 1, COMMENT)
    assert json.loads(lcp("job", 1, "--json").out)["warnings"] == told["warnings"]
    events = [json.loads(line) for line in lcp("watch", 1, "--json").out.splitlines()]
    assert [event["data"]["warnings"] for event in events if "warnings" in (event["data"] or {})] == [
        told["warnings"]
    ]
