"""Each shipped mission, played by a script over a small project: it ends well, and an idle planner does not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.shipped_missions.conftest import TWINS, Twin, spec_of, twin_of

from lcp_engine.core.job_states import State
from lcp_engine.shipped_missions import offers, shipped_missions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import JsonValue
    from tests.shipped_missions.conftest import Stage

    from lcp_engine.store.queries.records import Mission

MODELLED = [name for name in shipped_missions() if name not in ("survey", "release-notes")]
WRITING = [name for name in MODELLED if name not in ("review", "fix-tests")]


@pytest.mark.parametrize("name", MODELLED)
def test_a_mission_ends_well_where_its_planner_does_well(play: Callable[[str], Mission], name: str) -> None:
    mission = play(name)
    expected = "analysis_result" if name == "review" else "mission_complete"
    assert (mission.status, mission.outcome) == ("completed", expected), mission.error


@pytest.mark.parametrize("name", WRITING)
def test_the_one_file_of_a_mission_waits_for_a_person(stage: Stage, name: str) -> None:
    launched = stage.engine.launch(spec_of(name, twin_of(name)), root=stage.root)
    stage.engine.work(until_idle=True)
    assert stage.engine.mission(launched.id).status == "waiting"
    [held] = stage.engine.jobs(mission_id=launched.id, states=[State.HELD])
    stage.engine.approve(held.id)
    stage.engine.work(until_idle=True)
    assert stage.engine.mission(launched.id).deliverables == [held.params["rel_path"]]


@pytest.mark.parametrize("name", WRITING)
def test_a_mission_does_not_count_as_done_before_its_file_is_written(stage: Stage, name: str) -> None:
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "All is well."}
    launched = stage.engine.launch(spec_of(name, Twin(twin_of(name).variables, [done] * 5)), root=stage.root)
    stage.engine.work(until_idle=True)
    assert stage.engine.mission(launched.id).status == "waiting"
    [asked] = stage.engine.jobs(mission_id=launched.id, states=[State.HELD])
    assert asked.kind == "ask_user"
    assert "acceptance checks do not pass" in str(asked.params["question"])


def test_a_review_that_does_not_verify_is_not_accepted(stage: Stage) -> None:
    twin = twin_of("review")
    *work, verdict = twin.replies
    doubt: JsonValue = {"ok": False, "action": "error", "error": "the first issue names no file"}
    mission = stage.run("review", Twin(twin.variables, [*work, doubt, work[-1], verdict]))
    assert mission.outcome == "analysis_result"
    assert mission.turns == len(work) + 3
    ended_at_once = stage.run("review", Twin(twin.variables, [*work, doubt]))
    assert ended_at_once.outcome != "analysis_result"


@pytest.mark.parametrize("name", MODELLED)
def test_no_mission_writes_anything_else(stage: Stage, name: str) -> None:
    write: JsonValue = {
        "ok": True,
        "action": "write_file",
        "rel_path": "src/tally/main.py",
        "content": "pass\n",
    }
    fail: JsonValue = {"ok": False, "action": "error", "error": "it was refused"}
    before = (stage.root / "src/tally/main.py").read_text()
    mission = stage.run(name, Twin(twin_of(name).variables, [write, fail]))
    assert mission.jobs == {**mission.jobs, "rejected": 1}
    assert (stage.root / "src/tally/main.py").read_text() == before


def test_every_mission_says_in_one_line_what_it_does_and_what_its_variables_are() -> None:
    for offer in offers():
        told = [offer.outline.description, *(v.description for v in offer.outline.variables.values())]
        assert all(text and "\n" not in text and len(text) <= 100 for text in told), offer.name


def test_every_mission_that_a_model_plans_has_a_twin_and_limits(stage: Stage) -> None:
    assert {path.stem for path in TWINS.glob("*.yaml")} == set(MODELLED)
    for name in MODELLED:
        limits = spec_of(name, twin_of(name)).limits
        assert limits.max_tokens is not None
        assert limits.max_seconds is not None


def test_the_goal_of_a_mission_leaves_no_variable_open() -> None:
    for name in MODELLED:
        goal = spec_of(name, twin_of(name)).goal
        assert not re.search(r"\$\{", goal)
