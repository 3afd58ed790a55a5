"""Plans within a mission: turns that a planner asks for, and steps with a plan of their own (R6, R7, R12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
FOUND: Object = {"ok": True, "action": "analysis_result", "summary": "found it", "issues": ["one"]}


def ask(*jobs: Object | str) -> Object:
    """A reply that asks for jobs; a name is a job of the kind `do` with that name."""
    new_jobs: list[JsonValue] = [
        {"kind": "do", "params": {"of": job}} if isinstance(job, str) else {"params": {}, **job}
        for job in jobs
    ]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def plan(prompt: str, **params: JsonValue) -> Object:
    return {"kind": "agent_plan", "params": {"user_prompt": prompt, **params}}


def step(prompt: str, **params: JsonValue) -> Object:
    return plan(prompt, scope="step", **params)


def prompts(lab: Lab) -> list[JsonValue]:
    return [question.prompt for question in lab.questions]


def the_step(lab: Lab, number: int = 0) -> Object:
    """A step as JSON."""
    steps = [job for job in lab.engine.jobs(kinds=["agent_plan"]) if job.params.get("scope") == "step"]
    return steps[number].json


def test_a_turn_that_the_planner_asks_for_belongs_to_its_plan(lab: Lab) -> None:
    mission = lab.run(ask("a", plan("Look closer.", context="a is odd")), DONE)
    assert (mission.outcome, mission.turns) == ("mission_complete", 2)
    assert prompts(lab) == ["Find out.", "Look closer."]
    assert lab.questions[1].context == "a is odd"
    assert lab.states() == ["succeeded"]


def test_a_requested_turn_is_corrected_with_its_own_prompt_and_context(lab: Lab) -> None:
    lab.run(ask(plan("Look closer.", context="a is odd")), "prose", DONE)
    assert prompts(lab) == ["Find out.", "Look closer.", "Look closer."]
    assert lab.questions[2].context == "a is odd"


def test_turns_are_asked_one_at_a_time_in_the_order_of_job_ids(lab: Lab) -> None:
    lab.launch(ask(plan("One."), plan("Two."), "a"), ask("b"), ask(plan("Three.")), ask("c"), DONE)
    lab.work(threads=2)
    assert prompts(lab) == ["Find out.", "One.", "Two.", "Three.", "Find out."]
    assert lab.mission().outcome == "mission_complete"


def test_a_steps_result_is_the_action_that_ends_its_plan(lab: Lab) -> None:
    mission = lab.run(ask(step("Look."), "a"), FOUND, DONE)
    assert mission.outcome == "mission_complete"
    found = the_step(lab)
    assert (found["state"], found["result"]) == ("succeeded", FOUND)
    results = {result.kind: result for result in lab.questions[2].results}
    assert results["agent_plan"].result == FOUND
    assert results["do"].state == "succeeded"


def test_a_step_is_blocked_until_its_plan_ends(lab: Lab) -> None:
    lab.launch(ask(step("Look.", context="here")), ask("a", "b"), ask({"kind": "change"}), FOUND, DONE)
    lab.work()
    assert the_step(lab)["state"] == "blocked"
    assert lab.mission().status == "waiting"
    assert [len(question.results) for question in lab.questions] == [0, 0, 2]
    assert prompts(lab) == ["Find out.", "Look.", "Look."]
    assert lab.questions[2].context == "here"
    lab.engine.approve(lab.jobs()[2].id)
    assert lab.mission().status == "running"
    lab.work()
    assert (the_step(lab)["state"], the_step(lab)["result"]) == ("succeeded", FOUND)
    assert lab.mission().outcome == "mission_complete"
    assert prompts(lab)[3:] == ["Look.", "Find out."]
    assert [result.kind for result in lab.questions[4].results] == ["agent_plan"]


def test_rejecting_what_a_step_waits_for_asks_its_plan(lab: Lab) -> None:
    lab.run(ask(step("Look.")), ask({"kind": "change"}), FOUND, DONE)
    lab.engine.reject(lab.jobs()[0].id, "no")
    lab.work()
    assert prompts(lab) == ["Find out.", "Look.", "Look.", "Find out."]
    assert lab.questions[2].results[0].reason == "no"


def test_an_error_fails_the_step_and_not_the_mission(lab: Lab) -> None:
    error: Object = {"ok": False, "action": "error", "error": "nothing here", "error_code": "PATH_NOT_FOUND"}
    mission = lab.run(ask(step("Look.")), error, ask(step("Look again.")), ask("a"), error, DONE)
    assert mission.outcome == "mission_complete"
    for number in (0, 1):
        failed = the_step(lab, number)
        assert failed["state"] == "failed"
        assert lab.dig(failed, "result", "error") == "nothing here"
        assert lab.dig(failed, "error", "error_code") == "PATH_NOT_FOUND"


def test_a_step_that_is_malformed_too_often_fails_alone(lab: Lab) -> None:
    mission = lab.run(ask(step("Look.")), "one", "two", "three", DONE)
    assert (mission.outcome, mission.turns) == ("mission_complete", 3)
    assert lab.dig(the_step(lab), "error", "error_code") == "INVALID_REPLY"
    assert [question.correction.reply is not None for question in lab.questions] == [
        False,
        False,
        True,
        True,
        False,
    ]


def test_a_step_that_stalls_fails_alone(lab: Lab) -> None:
    mission = lab.run(ask("a", step("Look.")), ask("b"), *[ask("b")] * 3, DONE)
    assert mission.outcome == "mission_complete"
    assert lab.dig(the_step(lab), "error", "technical_details", "outcome") == "no_progress"


def test_a_failed_step_ends_the_mission_where_that_is_wished(lab: Lab) -> None:
    mission = lab.run(
        ask(step("Look.")), {"ok": False, "action": "error", "error": "no"}, on_job_failure="fail"
    )
    assert (mission.status, mission.outcome) == ("failed", "job_failed")


def test_a_step_whose_planner_is_silent_fails_alone(lab: Lab) -> None:
    mission = lab.run(ask(step("One."), step("Two.")), None, ask("a"), None, DONE)
    assert mission.outcome == "mission_complete"
    assert [the_step(lab, number)["state"] for number in (0, 1)] == ["failed", "failed"]
    assert prompts(lab)[-1] == "Find out."


def test_steps_nest(lab: Lab) -> None:
    inner: Object = {**FOUND, "summary": "inner"}
    mission = lab.run(ask(step("Outer.")), ask(step("Inner.")), ask("a"), inner, FOUND, DONE)
    assert mission.outcome == "mission_complete"
    assert prompts(lab) == ["Find out.", "Outer.", "Inner.", "Inner.", "Outer.", "Find out."]
    assert (the_step(lab, 0)["result"], the_step(lab, 1)["result"]) == (FOUND, inner)
    assert [len(question.results) for question in lab.questions] == [0, 0, 0, 1, 1, 1]


def test_the_end_of_a_plan_is_the_end_of_those_that_were_begun_in_it(lab: Lab) -> None:
    within = ask(step("Inner."), plan("Over."))
    mission = lab.run(ask(step("Outer.")), within, ask("a"), FOUND, ask("b"), DONE)
    assert mission.outcome == "mission_complete"
    assert prompts(lab) == ["Find out.", "Outer.", "Inner.", "Over.", "Find out.", "Find out."]
    assert (the_step(lab, 0)["state"], the_step(lab, 1)["state"]) == ("succeeded", "skipped")
    assert lab.states() == ["succeeded", "succeeded"]


def test_steps_side_by_side_take_turns(lab: Lab) -> None:
    lab.launch(ask(step("One."), step("Two.")), ask("a"), ask("b"), FOUND, FOUND, DONE)
    lab.work(threads=2)
    assert lab.mission().outcome == "mission_complete"
    assert sorted(str(each) for each in prompts(lab)[1:5]) == ["One.", "One.", "Two.", "Two."]
    assert len(lab.questions[5].results) == 2


def test_a_limit_cancels_steps_and_the_mission_gets_the_last_turn(lab: Lab) -> None:
    mission = lab.run(ask(step("Outer.")), ask(step("Inner.")), ask("a"), DONE, limits={"max_turns": 3})
    assert (mission.outcome, mission.turns) == ("mission_complete", 4)
    assert prompts(lab) == ["Find out.", "Outer.", "Inner.", "Find out."]
    last = lab.questions[3]
    assert last.last_turn == "max_turns"
    assert [(result.state, result.reason) for result in last.results] == [
        ("cancelled", "the mission reached max_turns")
    ]
    assert (the_step(lab, 0)["state"], the_step(lab, 1)["state"]) == ("cancelled", "cancelled")


def test_a_limit_that_a_step_would_begin_with_cancels_it(lab: Lab) -> None:
    mission = lab.run(ask(step("One."), step("Two.")), DONE, limits={"max_turns": 1})
    assert (mission.outcome, prompts(lab)) == ("mission_complete", ["Find out.", "Find out."])
    assert [result.state for result in lab.questions[1].results] == ["cancelled", "cancelled"]


def test_what_runs_of_a_cancelled_step_completes_and_leads_to_no_turn_of_it(lab: Lab) -> None:
    steps = ask(step("One."), step("Two."))
    mission = lab.run(steps, ask({"kind": "change"}), ask("b"), DONE, limits={"max_turns": 3})
    assert (mission.outcome, prompts(lab)) == ("mission_complete", ["Find out.", "One.", "Two.", "Find out."])
    assert lab.states() == ["cancelled", "succeeded"]


def test_the_end_of_the_mission_skips_steps(lab: Lab) -> None:
    mission = lab.run(ask(step("One."), plan("Over.")), ask({"kind": "change"}), DONE, {"never": "asked"})
    assert mission.outcome == "mission_complete"
    assert the_step(lab)["state"] == "skipped"
    assert lab.states() == ["held"]
    lab.engine.approve(lab.jobs()[0].id)
    lab.work()
    assert lab.states() == ["succeeded"]
    assert len(lab.questions) == 3


def test_a_mission_that_goes_on_after_its_end_has_no_use_for_old_steps(lab: Lab) -> None:
    mission = lab.run(ask(step("One."), plan("Over.")), ask({"kind": "change"}), DONE, ask("a"), DONE)
    lab.engine.resume(mission.id)
    lab.engine.approve(lab.jobs()[0].id)
    lab.work()
    assert lab.mission().outcome == "mission_complete"
    assert prompts(lab) == ["Find out.", "One.", "Over.", "Find out.", "Find out."]


def test_a_step_that_asks_for_what_is_held_for_others_is_asked_again(lab: Lab) -> None:
    held: Object = {"kind": "change", "params": {"of": 1}}
    mission = lab.run(ask(held, step("Look.")), ask(held), FOUND, DONE)
    assert mission.outcome == "mission_complete"
    assert lab.states() == ["held"]
    assert prompts(lab) == ["Find out.", "Look.", "Look.", "Find out."]


def test_a_held_turn_waits_for_a_person_and_for_its_turn(lab: Lab) -> None:
    held: Object = {**plan("Careful."), "auto_dispatch": False}
    lab.run(ask(held, "a"), ask("b"), DONE)
    assert prompts(lab) == ["Find out.", "Find out.", "Find out."]
    assert lab.mission().outcome == "mission_complete"
    other = lab.run(ask(held), ask("b"), DONE)
    assert other.status == "waiting"
    (job,) = lab.engine.jobs(mission_id=other.id, states=["held"])
    lab.engine.approve(job.id)
    lab.work()
    assert lab.mission(other.id).outcome == "mission_complete"
    assert prompts(lab)[3:] == ["Find out.", "Careful.", "Find out."]
