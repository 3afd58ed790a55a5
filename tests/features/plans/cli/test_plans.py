"""`lcp plan check` and `lcp plan show`, and missions with plans from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue
from tests import tables

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp

Object = dict[str, JsonValue]
PLAN: list[JsonValue] = [
    {"id": "step-001", "tool": "list_files", "parameters": {"patterns": ["*.md"]}},
    {"id": "step-002", "tool": "read_file", "parameters": {"path": "$output.step-001.files[0]"}},
    {"id": "step-003", "tool": "write_file", "parameters": {"path": "b.md", "content": "x"},
     "dependencies": ["step-002"]},
]  # fmt: skip

FOURTH: Object = {"id": "4", "tool": "list_files", "parameters": {}}


@pytest.fixture
def mission(lcp: Lcp, tmp_path: Path) -> str:
    (lcp.root / "a.md").write_text("a")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"name": "copy", "goal": "Copy.", "plan": {"steps": PLAN}}))
    return str(path)


def test_a_plan_is_checked_and_what_its_steps_wait_for_is_shown(lcp: Lcp, mission: str) -> None:
    done = lcp("plan", "check", mission)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "plan: 3 steps in 3 waves"
    assert "step-002  read_file   step-001  when its references are known" in lines[3]
    assert "held: default policy" in lines[4]
    assert lines[-1] == "valid"
    found = lcp("plan", "check", mission, "--json").object
    assert found["valid"] is True
    assert lcp("missions", "--json").out.strip() == "[]"


def test_a_plan_is_validated_without_a_worst_case_of_turns(lcp: Lcp, mission: str) -> None:
    shown = lcp("validate", mission, "--root", "root").out
    assert "plan        3 steps; `lcp plan check` shows them" in shown
    assert "worst case" not in shown


def test_a_wrong_plan_is_refused_with_the_place(lcp: Lcp, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"goal": "g", "plan": {"steps": [*PLAN, FOURTH]}}))
    done = lcp("plan", "check", str(path))
    assert (done.code, done.out) == (1, "")
    assert "plan.steps[3].id: should be a name that begins with a letter" in done.err
    found = lcp("plan", "check", str(path), "--json")
    assert (found.code, found.object["valid"]) == (1, False)


def test_a_mission_without_a_plan_has_none_to_check_or_to_show(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete)
    assert "plan: is missing" in lcp("plan", "check", mission).err
    lcp("run", mission, "--root", "root")
    done = lcp("plan", "show", "1")
    assert (done.code, done.out) == (0, "")
    assert "Mission 1 has no plan." in done.err


def test_an_execution_plan_is_a_mission_by_itself(lcp: Lcp, tmp_path: Path) -> None:
    seed: Object = {
        "id": "plan-3f2b8c1a-0d4e-4a6b-9c7d-1e2f3a4b5c6d", "request_id": "req-3f2b8c1a-0d4e-4a6b-9c7d-1e2f3a4b5c6d",
        "created_at": "2026-01-31T12:00:00Z", "metadata": {"of": "a program"},
        "error_handling": {"on_step_failure": "abort_plan"},
        "steps": [
            {"id": "step-001", "name": "Look", "tool": "tool-list-files", "parameters": {}},
            {"id": "step-002", "tool": "tool-write-file", "dependencies": ["step-001"], "timeout_ms": 0,
             "parameters": {"path": "n.txt", "content": "$output.step-001.total of ${HOME}"},
             "retry": {"max_attempts": 2, "delay_ms": 0}},
        ],
    }  # fmt: skip
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(seed))
    assert lcp("plan", "check", str(path)).code == 0
    assert lcp("run", str(path), "--root", "root", "--approve", "write_file").code == 0
    assert (lcp.root / "n.txt").read_text().endswith(" of ${HOME}")
    assert lcp("show", "1", "--json").object["name"] == seed["id"]


@tables.table(
    ("more", "said"),
    [
        (
            {"goal": "g"},
            "goal: is a key of a mission, and steps of a plan that stands alone; state them in the",
        ),
        ({"limits": {}}, "limits: is a key of a mission"),
        ({"plan": {"steps": PLAN}}, "plan: is a key of a mission"),
        (
            {"input": "g"},
            "input: is a key of a request, and steps of a plan that stands alone; leave out input or",
        ),
    ],
)
def test_a_plan_that_is_a_mission_too_is_refused(lcp: Lcp, tmp_path: Path, more: Object, said: str) -> None:
    path = tmp_path / "both.json"
    path.write_text(json.dumps({"steps": PLAN, **more}))
    done = lcp("run", str(path), "--root", "root")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert f"both.json: {said}" in done.err


def test_steps_and_plans_have_the_names_that_a_person_gives_them(lcp: Lcp, tmp_path: Path) -> None:
    steps: list[JsonValue] = [
        {"id": "look", "tool": "list_files", "parameters": {}},
        {"id": "read-it", "tool": "read_file", "parameters": {"path": "$output.look.files[0]"},
         "condition": {"type": "expression", "expression": "look.result.total > 0"}},
    ]  # fmt: skip
    (lcp.root / "a.md").write_text("a")
    path = tmp_path / "named.json"
    path.write_text(json.dumps({"id": "main", "steps": steps}))
    assert lcp("run", str(path), "--root", "root").code == 0
    assert "longest path: look > read-it" in lcp("plan", "show", "1").out
    assert "continues from look of mission 1" in lcp("fork", "1", "--step", "look").err


def test_the_steps_of_a_mission_are_shown_as_a_graph(lcp: Lcp, mission: str) -> None:
    assert lcp("run", mission, "--root", "root").code == 3
    done = lcp("plan", "show", "1")
    assert "plan main (abort_plan): 2 of 3 steps succeeded, 1 held" in done.out
    assert "longest path: step-001 > step-002 > step-003" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    (graph,) = json.loads(lcp("plan", "show", "1", "--json").out)
    assert [(step["step"], step["wave"], step["state"]) for step in graph["steps"]] == [
        ("step-001", 1, "succeeded"), ("step-002", 2, "succeeded"), ("step-003", 3, "held"),
    ]  # fmt: skip
    lcp("approve", "3")
    assert lcp("work", "--until-idle").code == 0
    assert lcp("missions", "--json").out.count("plan_complete") == 1


def test_a_plan_that_stays_incomplete_exits_4_and_one_that_fails_exits_1(lcp: Lcp, tmp_path: Path) -> None:
    missing: Object = {"id": "step-001", "tool": "read_file", "parameters": {"path": "none"}}
    for handling, code in (("continue_plan", 4), ("abort_plan", 1)):
        path = tmp_path / f"{handling}.json"
        plan: Object = {"steps": [missing], "error_handling": {"on_step_failure": handling}}
        path.write_text(json.dumps({"goal": "g", "plan": plan}))
        assert lcp("run", str(path), "--root", "root").code == code
