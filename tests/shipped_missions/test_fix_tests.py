"""The mission `fix-tests` turns a project green whose tests fail, and cannot end before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.shipped_missions.conftest import Twin
from tests.walls import NEEDS_LANDLOCK

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.shipped_missions.conftest import Stage

pytestmark = NEEDS_LANDLOCK
PYTEST = str(Path(sys.prefix) / "bin" / "pytest")
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "The case of words was ignored."}


def ask(kind: str, **params: JsonValue) -> JsonValue:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": kind, "params": params}]}


@pytest.fixture
def red(stage: Stage) -> Stage:
    """The project with a test that fails."""
    (stage.root / "conftest.py").write_text("import sys\n\nsys.path.insert(0, 'src')\n")
    (stage.root / "test_count.py").write_text(
        "from tally.count import count\n\n\ndef test_case():\n    assert count('To be to') == {'to': 2, 'be': 1}\n"
    )
    return stage


RUN = ask("run_command", command=[PYTEST, "-q", "-p", "no:cacheprovider"])
EDIT = ask(
    "edit_file", rel_path="src/tally/count.py", old_text="text.split()", new_text="text.lower().split()"
)


def test_a_red_project_becomes_green(red: Stage) -> None:
    replies = [RUN, ask("read_file", rel_path="src/tally/count.py"), DONE, EDIT, RUN, DONE]
    mission = red.run("fix-tests", Twin({"command": PYTEST}, replies))
    assert (mission.outcome, mission.turns) == ("mission_complete", len(replies))
    assert mission.deliverables == ["src/tally/count.py"]
    first, _, edit, second = [
        job for job in red.engine.jobs(mission_id=mission.id) if job.kind != "agent_plan"
    ]
    assert first.result is not None
    assert second.result is not None
    assert (first.result["exit_code"], second.result["exit_code"]) == (1, 0)
    assert "FAILED test_count.py::test_case" in str(first.result["stdout"])
    assert edit.state == "succeeded"
    assert not list(red.root.rglob("__pycache__"))


@pytest.mark.parametrize(
    "way",
    [
        ask("run_command", command=["sh", "-c", "rm test_count.py"]),
        *(
            pytest.param(way, marks=pytest.mark.proof)
            for way in (
                ask("delete_file", rel_path="test_count.py"),
                ask("write_file", rel_path="test_count.py", content=""),
                ask("run_command", command=[PYTEST, "-q", "--co"]),
            )
        ),
    ],
)
def test_no_other_way_makes_it_green(red: Stage, way: JsonValue) -> None:
    before = (red.root / "test_count.py").read_text()
    give_up: JsonValue = {"ok": False, "action": "error", "error": "it cannot be done"}
    mission = red.run("fix-tests", Twin({"command": PYTEST}, [way, DONE, give_up]))
    assert mission.status == "failed"
    assert (red.root / "test_count.py").read_text() == before
