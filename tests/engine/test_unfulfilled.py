"""A completed mission names the effects that its planner asked for and that did not happen (R26)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.engine.replies import DONE, FREE, ask, read, write

from lcp_engine.cli.console.exits import exit_of_mission
from lcp_engine.core.summaries import status_of
from lcp_engine.features.reports.markdown import as_markdown, make_report
from lcp_engine.features.universal.agent_response import respond_as_agent
from lcp_engine.features.universal.structured import respond

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.engine.conftest import Lab, Object

WRITES: Object = {"kinds": ["write_file"], "do": "auto"}
NO_B: list[JsonValue] = [{"kinds": ["*"], "paths": ["b"], "do": "deny"}, FREE]
CHANGE: Object = {"kind": "change", "params": {"of": "x"}}
NO_CHANGE: list[JsonValue] = [{"kinds": ["change"], "do": "deny"}, FREE]
STEP: Object = {"kind": "agent_plan", "params": {"user_prompt": "A step.", "scope": "step"}}


def told(lab: Lab, mission_id: int = 1) -> tuple[list[int], int]:
    """The unfulfilled jobs of a mission, by their position among its jobs, and its exit code."""
    mission = lab.mission(mission_id)
    places = {job.id: place for place, job in enumerate(lab.jobs(mission_id))}
    return [places[job] for job in mission.unfulfilled], int(exit_of_mission(lab.engine, mission))


@pytest.mark.parametrize(
    ("jobs", "spec", "expected"),
    [
        ([write("b", "x"), write("c", "x")], {"policy": []}, 2),  # held
        ([write("b", "x"), read("a")], {"policy": [{"kinds": ["read_file", "write_file"], "do": "hold"}]}, 2),
        ([write("b", "x"), write("c", "x")], {"policy": NO_B}, 1),  # one refused, one done
        ([write("b", "x"), write("c", "x")], {"policy": NO_B[:1]}, 2),  # one refused, one held
        ([write("b", "x"), write("c", "x")], {"policy": NO_B[:1], "unfulfilled": "accept"}, 1),
        ([read("a")], {}, 0),
    ],
)  # fmt: skip
def test_what_a_mission_left_open_is_counted_once_it_has_ended(
    lab: Lab, jobs: list[Object], spec: Object, expected: int
) -> None:
    (lab.root / "a").write_text("a")
    mission = lab.run(ask("look", *jobs), DONE, planner=None, each_result=False, **spec)
    assert (mission.status, mission.open) == ("completed", expected)
    shown = "completed" if not expected else f"ended, {expected} open"
    assert status_of(mission.json) == shown
    assert lab.engine.missions()[0].open == expected


def test_a_mission_that_has_not_ended_has_nothing_open(lab: Lab) -> None:
    mission = lab.run(ask(write("b", "x")), DONE, planner=None, policy=[])
    assert (mission.status, mission.open, status_of(mission.json)) == ("waiting", 0, "waiting")


@pytest.mark.parametrize(
    ("replies", "spec", "expected"),
    [
        ([ask(write("b", "x")), DONE], {"policy": NO_B}, ([0], 4)),
        ([ask(write("b", "x")), DONE], {"policy": NO_B, "unfulfilled": "accept"}, ([], 0)),
        ([ask(write("b", "x"), read("a")), DONE], {"policy": [FREE]}, ([], 0)),
        ([ask(read("b"), {"kind": "fail"}), DONE], {"policy": NO_B}, ([], 0)),
        ([ask(write("dir", "x")), DONE], {"policy": [FREE]}, ([0], 4)),
        ([ask(write("dir", "x")), ask(write("a", "x")), DONE], {"policy": [FREE]}, ([0], 4)),
        ([ask(write("b", "x")), {"ok": False, "action": "error", "error": "no"}], {"policy": NO_B}, ([0], 1)),
        ([ask(write("dir", "x")), DONE], {"policy": [FREE], "on_job_failure": "fail"}, ([0], 1)),
        ([ask(CHANGE), DONE], {"policy": NO_CHANGE}, ([0], 4)),
        ([ask("look", CHANGE), DONE], {}, ([1], 3)),
        ([ask("look", {"kind": "unknown"}), DONE], {}, ([1], 3)),
        ([ask("look", {"kind": "ask_user", "params": {"question": "?"}}), DONE], {}, ([], 0)),
        ([ask("look", {"kind": "system"}), DONE], {}, ([], 0)),
        ([ask(write("b", "x"), write("c", "x"), "look"), DONE], {"policy": NO_B[:1]}, ([0, 1], 3)),
        ([ask(STEP), ask(write("b", "x")), DONE, DONE], {"policy": NO_B}, ([0], 4)),
        ([ask(*(write(name, "x") for name in "bcd")), DONE], {"policy": NO_B, "limits": {"max_jobs": 1}},
         ([0, 2], 4)),
    ],
)  # fmt: skip
def test_an_effect_that_did_not_happen_is_named(
    lab: Lab, replies: list[JsonValue], spec: Object, expected: tuple[list[int], int]
) -> None:
    (lab.root / "a").write_text("a")
    (lab.root / "dir").mkdir()
    lab.run(*replies, planner=None, each_result=False, **spec)
    assert told(lab) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (write("b/c", "x"), write("b/c", "y")),
        (
            write("b/c", "x"),
            {"kind": "write_file", "params": {"root": "b", "rel_path": "./c", "content": "y"}},
        ),
        (write("b/c", "x"), {"kind": "rewrite_file", "params": {"path": "b//c", "content": "y"}}),
    ],
)
def test_a_later_job_with_the_same_effect_makes_it_good(lab: Lab, first: Object, second: Object) -> None:
    lab.run(ask("look", first), ask(second, "more"), DONE, policy=[])
    refused = lab.jobs()[1].id
    lab.engine.reject(refused, "not so")
    assert told(lab)[1] == 3
    lab.engine.approve(lab.jobs()[2].id)
    lab.work()
    assert told(lab) == ([], 0)


def test_another_file_and_an_earlier_write_make_nothing_good(lab: Lab) -> None:
    policy: list[JsonValue] = [{"kinds": ["write_file"], "paths": ["a"], "do": "auto"}]
    lab.run(
        ask(write("a", "1")),
        ask(write("a", "2", mode="append"), write("b", "x"), "look"),
        DONE,
        policy=policy,
    )
    lab.engine.reject(lab.jobs()[2].id, "no")
    assert told(lab) == ([2], 4)


def test_a_job_retried_or_executed_later_is_made_good(lab: Lab) -> None:
    (lab.root / "b").mkdir()
    lab.run(ask(write("b", "x")), ask("look"), ask(write("b", "x")), DONE, policy=[FREE])
    assert told(lab) == ([0, 2], 4)
    (lab.root / "b").rmdir()
    lab.engine.retry(lab.jobs()[0].id)
    lab.work()
    assert told(lab) == ([], 0)


def test_a_held_effect_is_decided_after_the_end(lab: Lab) -> None:
    lab.run(ask("look", CHANGE, write("c", "x")), DONE)
    assert told(lab) == ([1, 2], 3)
    lab.engine.approve(lab.jobs()[1].id)
    lab.work()
    assert told(lab) == ([2], 3)
    lab.engine.reject(lab.jobs()[2].id, "no")
    assert told(lab) == ([2], 4)


def test_an_approval_with_other_params_counts_for_those(lab: Lab) -> None:
    lab.run(ask(write("b", "x"), "look"), ask(write("c", "x"), "more"), DONE, policy=[])
    first, _, second, _ = lab.jobs()
    lab.engine.reject(first.id, "no")
    lab.engine.approve(second.id, params={"rel_path": "b", "content": "y"})
    lab.work()
    assert told(lab) == ([], 0)


def test_jobs_of_the_operator_and_an_undo_change_nothing(lab: Lab) -> None:
    (lab.root / "dir").mkdir()
    lab.run(ask(write("b", "x")), DONE, policy=[FREE])
    lab.engine.undo(1)
    lab.engine.enqueue("write_file", {"rel_path": "dir", "content": "x"}, mission_id=1)
    lab.work()
    assert told(lab) == ([], 0)


def test_a_fork_and_a_replay_know_what_was_refused(lab: Lab) -> None:
    mission = lab.run(ask(write("b", "x")), DONE, policy=NO_B)
    assert lab.engine.replay(mission.id).is_same
    forked = lab.engine.fork(mission.id, turn=2).id
    lab.work()
    assert told(lab, forked) == ([0], 4)


def test_every_report_names_the_jobs(lab: Lab) -> None:
    lab.run(ask(write("b", "x"), "look", write("c", "x")), DONE, policy=NO_B[:1])
    ids = lab.mission().unfulfilled
    facts, course = lab.engine.standing(1)
    assert make_report(facts)["unfulfilled"] == ids
    assert lab.dig(respond_as_agent(facts, course, {}).as_json(), "metadata", "unfulfilled") == ids
    assert f"- job {ids[0]} write_file `b`: rejected\n- job {ids[1]} write_file `c`: waits for a person" in (
        as_markdown(facts)
    )
    response = respond(facts, course).as_json()
    blocks = lab.dig(response, "content", "text_blocks")
    assert isinstance(blocks, list)
    contents = [lab.dig(block, "content") for block in blocks]
    assert "The mission has ended, with 2 jobs asked for and not done." in contents
    assert lab.dig(response, "meta", "emotion") == "supportive"
