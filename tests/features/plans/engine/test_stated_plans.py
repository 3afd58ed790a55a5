"""Missions that state their plan: the same jobs and edges, without a planner, ended by rule (R27)."""

from __future__ import annotations

import re
from threading import Event
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.examination import check_database

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

    from lcp_engine.store.queries.records import Mission

FALLBACK = "plan-00000000-0000-4000-8000-00000000000b"


def step(number: int, tool: str = "do", **more: JsonValue) -> Object:
    parameters = more.pop("parameters", {"of": number})
    return {"id": f"step-{number:03}", "tool": tool, "parameters": parameters, **more}


def after(*numbers: int) -> list[JsonValue]:
    return [f"step-{number:03}" for number in numbers]


def on(kind: str, number: int) -> Object:
    return {"type": kind, "step_id": f"step-{number:03}"}


def when(expression: str) -> Object:
    return {"type": "expression", "expression": expression}


def launch(lab: Lab, *steps: Object, on_failure: str | None = None, **spec: JsonValue) -> int:
    plan: Object = {"steps": [*steps]}
    if on_failure is not None:
        plan["error_handling"] = {"on_step_failure": on_failure}
        if on_failure == "execute_fallback":
            plan["error_handling"] = {"on_step_failure": on_failure, "fallback_plan_id": FALLBACK}
    return lab.engine.launch({"goal": "Do it.", "plan": plan, **spec}, root=lab.root).id


def run(lab: Lab, *steps: Object, on_failure: str | None = None, **spec: JsonValue) -> Mission:
    mission = launch(lab, *steps, on_failure=on_failure, **spec)
    lab.work()
    return lab.mission(mission)


def states(lab: Lab, mission: int = 1) -> list[str]:
    return [job.state for job in lab.engine.jobs(mission_id=mission)]


def error_code(lab: Lab, job_id: int) -> JsonValue:
    return lab.dig(lab.engine.job(job_id).json["error"], "error_code")


def same_again(lab: Lab, mission: int = 1) -> None:
    """The mission replays the same, and the database is whole."""
    replayed = lab.engine.replay(mission)
    assert (replayed.is_same, replayed.stopped) == (True, None), replayed.differences
    assert check_database(lab.url, kept_bytes=10) == []


def test_a_plan_runs_without_a_planner_and_ends_its_mission(lab: Lab) -> None:
    mission = run(lab, step(1), step(2, dependencies=after(1)), step(3, dependencies=after(1, 2)))
    assert (mission.status, mission.outcome, mission.summary) == (
        "completed", "plan_complete", "3 of 3 steps succeeded",
    )  # fmt: skip
    assert (mission.planner, mission.turns) == ("none", 0)
    same_again(lab)


def test_a_mission_without_a_planner_takes_no_message_and_goes_on(lab: Lab) -> None:
    mission = launch(lab, step(1, "change"), policy=[{"kinds": ["change"], "do": "hold"}])
    lab.engine.work(until_idle=True)
    with pytest.raises(LcpError, match="has no planner; nobody would read the message"):
        lab.engine.say(mission, "Hello.")
    (held,) = lab.engine.jobs(states=["held"])
    lab.engine.approve(held.id)
    lab.engine.work(until_idle=True)
    assert lab.engine.mission(mission).outcome == "plan_complete"


def test_a_step_names_a_kind_by_the_id_of_its_tool(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("a\n")
    mission = run(lab, step(1, "tool-list-files", parameters={}), step(2, "tool-do", dependencies=after(1)))
    assert mission.summary == "2 of 2 steps succeeded"
    assert [row[0] for row in lab.rows("SELECT kind FROM jobs ORDER BY id")] == ["list_files", "do"]


def test_a_step_begins_when_all_that_it_waits_for_has_succeeded(lab: Lab) -> None:
    launch(lab, step(1), step(2), step(3, dependencies=after(1, 2)))
    assert states(lab) == ["queued", "queued", "blocked"]
    lab.engine.instance.database.write(lambda tx: None)
    lab.work()
    events = [
        (event["event"], event["job_id"]) for event in lab.engine.events(1) if event["event"] != "attempted"
    ]
    assert events.index(("unblocked", 3)) > max(
        events.index(("succeeded", 1)), events.index(("succeeded", 2))
    )


def test_steps_may_be_listed_in_any_order(lab: Lab) -> None:
    mission = run(lab, step(3, dependencies=after(2)), step(2, dependencies=after(1)), step(1))
    assert mission.outcome == "plan_complete"


def test_a_failed_step_aborts_the_plan_and_the_mission_has_failed(lab: Lab) -> None:
    mission = run(lab, step(1, "fail"), step(2, dependencies=after(1)), step(3, dependencies=after(2)))
    assert states(lab) == ["failed", "skipped", "skipped"]
    assert (mission.status, mission.outcome) == ("failed", "job_failed")
    assert mission.summary == "step-001 failed: it is not there; 0 of 3 steps succeeded, 1 failed, 2 skipped"
    assert mission.error is not None
    assert mission.error["error_code"] == "WORKER_FAILED"
    assert lab.engine.jobs(mission_id=1)[1].reason == "step step-001 (job 1) failed, and that ends the plan"
    same_again(lab)


def test_with_continue_plan_only_what_follows_the_failed_step_is_skipped(lab: Lab) -> None:
    mission = run(
        lab, step(1, "fail"), step(2, dependencies=after(1)), step(3), step(4, dependencies=after(3)),
        on_failure="continue_plan",
    )  # fmt: skip
    assert states(lab) == ["failed", "skipped", "succeeded", "succeeded"]
    assert (mission.status, mission.outcome) == ("completed", "plan_incomplete")
    same_again(lab)


def test_a_failure_that_a_condition_waits_for_aborts_nothing(lab: Lab) -> None:
    mission = run(
        lab,
        step(1, "fail"),
        step(2, condition=on("step_failure", 1)),
        step(3, condition=on("step_success", 1)),
    )
    assert states(lab) == ["failed", "succeeded", "skipped"]
    assert mission.outcome == "plan_complete"
    same_again(lab)


def test_a_step_for_a_failure_is_skipped_where_there_is_none(lab: Lab) -> None:
    mission = run(lab, step(1), step(2, condition=on("step_failure", 1)), step(3, dependencies=after(2)))
    assert states(lab) == ["succeeded", "skipped", "skipped"]
    assert mission.outcome == "plan_complete"


@pytest.mark.parametrize(
    ("expression", "state"),
    [
        ("step-001.status == 'succeeded'", "succeeded"),
        ("step-001.result.done", "succeeded"),
        ("$output.step-001.done == true and not step-001.result.more", "succeeded"),
        ("step-001.result.count > 3 or step-001.status == 'failed'", "skipped"),
        ("step-001.result.a.b[3] == null", "succeeded"),
    ],
)
def test_an_expression_decides_whether_a_step_is_executed(lab: Lab, expression: str, state: str) -> None:
    mission = run(lab, step(1), step(2, condition=when(expression)))
    assert states(lab) == ["succeeded", state]
    assert mission.outcome == "plan_complete"
    same_again(lab)


def test_a_skipped_effect_of_a_condition_is_not_missing(lab: Lab) -> None:
    mission = run(lab, step(1), step(2, "change", condition=on("step_failure", 1)))
    assert (mission.outcome, mission.unfulfilled) == ("plan_complete", [])


def test_a_step_is_retried_as_often_as_its_plan_says_whatever_the_error_is(lab: Lab) -> None:
    run(lab, step(1, "fail", retry={"max_attempts": 3, "delay_ms": 1}))
    assert lab.engine.job(1).json["attempt"] == 3
    assert lab.events().count("backed_off") == 2


def test_a_reference_becomes_the_value_before_the_step_runs(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("hello")
    mission = run(
        lab,
        step(1, "list_files", parameters={"patterns": ["*.txt"]}),
        step(2, "read_file", parameters={"path": "$output.step-001.files[0]"}),
        step(
            3,
            "do",
            parameters={"of": "$output.step-002.content", "all": "<$output.step-001.files> $$output."},
        ),
    )
    assert mission.outcome == "plan_complete"
    assert lab.engine.job(2).params == {"path": "a.txt"}
    assert lab.engine.job(3).params == {"of": "hello", "all": '<["a.txt"]> $output.'}
    same_again(lab)


def test_a_missing_reference_fails_the_step_and_names_the_path(lab: Lab) -> None:
    mission = run(lab, step(1), step(2, parameters={"of": "$output.step-001.files[0]"}))
    assert states(lab) == ["succeeded", "failed"]
    assert error_code(lab, 2) == "OUTPUT_NOT_FOUND"
    message = "job 2 (do): $output.step-001.files[0]: $output.step-001 is an object with the keys done"
    assert message in str(mission.summary)
    same_again(lab)


def test_what_policy_holds_is_held_with_its_references_resolved(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("hello")
    mission = run(
        lab,
        step(1, "read_file", parameters={"path": "a.txt"}),
        step(2, "write_file", parameters={"path": "b.txt", "content": "$output.step-001.content!"}),
        step(3, dependencies=after(2)),
    )
    assert mission.status == "waiting"
    held = lab.engine.job(2)
    assert (held.state, held.params) == ("held", {"path": "b.txt", "content": "hello!"})
    assert [diff.path for diff in lab.engine.diff(2)] == ["b.txt"]
    lab.engine.approve(2)
    lab.work()
    assert (lab.root / "b.txt").read_text() == "hello!"
    assert lab.mission().outcome == "plan_complete"
    same_again(lab)


def test_an_approval_does_not_cover_a_file_that_has_changed_since_the_step_was_held(lab: Lab) -> None:
    run(lab, step(1, "write_file", parameters={"path": "b.txt", "content": "new"}))
    (lab.root / "b.txt").write_text("of someone else")
    with pytest.raises(LcpError) as refused:
        lab.engine.approve(1)
    assert refused.value.code is ErrorCode.CONFLICT


def test_what_policy_denies_fails_when_its_turn_comes(lab: Lab) -> None:
    mission = run(
        lab, step(1), step(2, "read_file", parameters={"path": ".env"}, dependencies=after(1)), step(3),
        on_failure="continue_plan",
    )  # fmt: skip
    assert states(lab) == ["succeeded", "failed", "succeeded"]
    assert mission.outcome == "plan_incomplete"
    assert error_code(lab, 2) == "PATH_DENIED"


def test_a_rejected_step_is_a_failed_one(lab: Lab) -> None:
    run(lab, step(1, "change"), step(2, condition=on("step_failure", 1)))
    lab.engine.reject(1, "no")
    lab.work()
    assert states(lab) == ["rejected", "succeeded"]
    same_again(lab)


def test_a_question_is_asked_when_the_steps_before_it_have_ended(lab: Lab) -> None:
    launch(
        lab,
        step(1),
        step(2, "ask_user", parameters={"question": "Publish $output.step-001?"}),
        step(3, parameters={"of": "$output.step-002.answer"}),
    )
    assert states(lab) == ["queued", "blocked", "blocked"]
    lab.work()
    assert lab.engine.job(2).params == {"question": 'Publish {"done": true}?'}
    lab.engine.answer(2, "yes")
    lab.work()
    assert lab.engine.job(3).params == {"of": "yes"}
    assert lab.mission().outcome == "plan_complete"
    same_again(lab)


def test_a_failed_plan_falls_back_to_another_one_once(lab: Lab) -> None:
    fallback: Object = {"id": FALLBACK, "steps": [step(1), step(2, dependencies=after(1))]}
    mission = run(
        lab, step(1, "fail"), step(2, dependencies=after(1)), on_failure="execute_fallback",
        fallback_plans=[fallback],
    )  # fmt: skip
    assert states(lab) == ["failed", "skipped", "succeeded", "succeeded"]
    assert mission.outcome == "plan_complete"
    assert (
        mission.summary
        == f"step-001 failed: it is not there; the fallback {FALLBACK}: 2 of 2 steps succeeded"
    )
    same_again(lab)


def test_a_fallback_that_fails_ends_the_mission(lab: Lab) -> None:
    fallback: Object = {"id": FALLBACK, "steps": [step(1, "fail")]}
    mission = run(lab, step(1, "fail"), on_failure="execute_fallback", fallback_plans=[fallback])
    assert (mission.status, states(lab)) == ("failed", ["failed", "failed"])
    same_again(lab)


def test_a_step_may_ask_the_planner_and_others_use_its_answer(lab: Lab) -> None:
    scribe: Object = {
        "type": "scribe", "log": str(lab.log),
        "replies": [{"ok": True, "action": "analysis_result", "summary": "Three modules."}],
    }  # fmt: skip
    mission = run(
        lab,
        step(1),
        step(2, "agent_plan", parameters={"user_prompt": "Sum up $output.step-001."}),
        step(3, parameters={"of": "$output.step-002.summary"}),
        planner=scribe,
    )
    assert mission.outcome == "plan_complete"
    assert [question.prompt for question in lab.questions] == ['Sum up {"done": true}.']
    assert lab.engine.job(3).params == {"of": "Three modules."}
    same_again(lab)


def test_a_step_whose_planner_gives_up_has_failed(lab: Lab) -> None:
    scribe: Object = {
        "type": "scribe", "log": str(lab.log), "replies": [{"ok": False, "action": "error", "error": "No."}],
    }  # fmt: skip
    mission = run(lab, step(1, "agent_plan", parameters={"user_prompt": "Sum up."}), planner=scribe)
    assert (mission.outcome, mission.summary) == (
        "job_failed",
        "step-001 failed: No.; 0 of 1 steps succeeded, 1 failed",
    )
    same_again(lab)


def test_resuming_a_failed_plan_executes_what_failed_and_what_was_skipped(lab: Lab) -> None:
    lab.failures["flaky"] = 100
    mission = run(lab, step(1), step(2, "flaky", dependencies=after(1)), step(3, dependencies=after(2)))
    assert (mission.outcome, states(lab)) == ("job_failed", ["succeeded", "failed", "skipped"])
    lab.failures["flaky"] = 0
    lab.engine.resume(1)
    lab.work()
    assert (lab.mission().outcome, states(lab)) == ("plan_complete", ["succeeded"] * 3)
    same_again(lab)
    with pytest.raises(LcpError, match="has completed its plan"):
        lab.engine.resume(1)


def test_a_failed_step_of_a_plan_that_goes_on_is_retried_with_what_follows(lab: Lab) -> None:
    lab.failures["flaky"] = 100
    run(lab, step(1, "flaky"), step(2, dependencies=after(1)), step(3, "change"), on_failure="continue_plan")
    assert states(lab) == ["failed", "skipped", "held"]
    lab.failures["flaky"] = 0
    lab.engine.retry(1)
    lab.work()
    assert states(lab) == ["succeeded", "succeeded", "held"]
    lab.engine.approve(3)
    lab.work()
    assert lab.mission().outcome == "plan_complete"
    with pytest.raises(LcpError, match="job 1 is succeeded"):
        lab.engine.retry(1)
    same_again(lab)


def test_a_cancelled_plan_is_resumed_where_it_stopped(lab: Lab) -> None:
    run(lab, step(1), step(2, "change", dependencies=after(1)), step(3, dependencies=after(2)))
    lab.engine.cancel(1)
    assert states(lab) == ["succeeded", "cancelled", "cancelled"]
    lab.engine.resume(1)
    lab.work()
    assert states(lab) == ["succeeded", "held", "blocked"]
    lab.engine.approve(2)
    lab.work()
    assert lab.mission().outcome == "plan_complete"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([step(1, "doo")], "plan.steps[0].tool: no worker executes the kind 'doo'; did you mean 'do'?"),
        (
            [step(1, "agent_plan")],
            "plan.steps[0].tool: agent_plan asks the mission's planner, and it names none",
        ),
        (
            [step(1, "read_file", parameters={"pth": "a"})],
            "plan.steps[0].parameters.pth: ",
        ),
    ],
)
def test_a_step_that_cannot_run_here_is_refused_at_launch(lab: Lab, steps: list[Object], said: str) -> None:
    with pytest.raises(LcpError) as refused:
        launch(lab, *steps)
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert said in str(refused.value)
    assert lab.engine.missions() == []


def test_a_plan_is_forked_at_the_turn_of_a_step(lab: Lab) -> None:
    replies: list[JsonValue] = [{"ok": True, "action": "analysis_result", "summary": "Three modules."}]
    scribe: Object = {"type": "scribe", "log": str(lab.log), "replies": replies}
    run(
        lab,
        step(1),
        step(2, "agent_plan", parameters={"user_prompt": "Sum up $output.step-001."}),
        step(3, parameters={"of": "$output.step-002.summary"}),
        step(4, condition=on("step_failure", 2)),
        planner=scribe,
    )
    other = '{"ok": true, "action": "analysis_result", "summary": "Four."}'
    forked = lab.engine.fork(1, turn=1, reply=other).id
    lab.work()
    mission = lab.mission(forked)
    assert (mission.outcome, states(lab, forked)) == (
        "plan_complete", ["succeeded", "succeeded", "succeeded", "skipped"],
    )  # fmt: skip
    assert lab.engine.jobs(mission_id=forked)[2].params == {"of": "Four."}
    same_again(lab, forked)


def test_a_plan_without_a_planner_is_forked_at_a_step(lab: Lab) -> None:
    lab.failures["flaky"] = 1
    run(
        lab,
        step(1),
        step(2, "flaky", retry={"max_attempts": 1}, dependencies=after(1)),
        step(3, parameters={"of": "$output.step-002.done"}),
    )
    assert (lab.mission().outcome, states(lab)) == ("job_failed", ["succeeded", "failed", "skipped"])
    forked = lab.engine.fork(1, step="step-002").id
    assert states(lab, forked) == ["succeeded", "queued", "blocked"]
    lab.work()
    assert (lab.mission(forked).outcome, states(lab, forked)) == ("plan_complete", ["succeeded"] * 3)
    assert [len(job.attempts) for job in lab.engine.jobs(mission_id=forked)] == [1, 1, 1]
    same_again(lab, forked)
    again = lab.engine.fork(forked, step=str(lab.engine.jobs(mission_id=forked)[2].id)).id
    assert lab.engine.jobs(mission_id=again)[2].params == {"of": "$output.step-002.done"}
    lab.work()
    assert lab.mission(again).outcome == "plan_complete"
    same_again(lab, again)


def test_what_had_not_ended_when_a_step_began_is_done_again(lab: Lab) -> None:
    replies: list[JsonValue] = [{"ok": True, "action": "analysis_result", "summary": "One."}]
    scribe: Object = {"type": "scribe", "log": str(lab.log), "replies": replies}
    asks = step(1, "agent_plan", parameters={"user_prompt": "Sum up."})
    run(lab, asks, step(2), step(3, "change", dependencies=after(2)), planner=scribe)
    lab.engine.approve(3)
    lab.work()
    forked = lab.engine.fork(1, step="step-002").id
    lab.work()
    assert states(lab, forked) == ["succeeded", "succeeded", "held"]
    assert (lab.mission(forked).turns, len(lab.questions)) in ((1, 1), (1, 2))
    lab.engine.approve(lab.engine.jobs(mission_id=forked)[2].id)
    lab.work()
    same_again(lab, forked)
    held = lab.engine.fork(1, step="step-003").id
    lab.work()
    assert states(lab, held) == ["succeeded", "succeeded", "held"]


def test_steps_that_cannot_be_forked_are_refused(lab: Lab) -> None:
    fallback: Object = {"id": FALLBACK, "steps": [step(1)]}
    run(
        lab, step(1, "fail"), step(2, dependencies=after(1)), on_failure="execute_fallback",
        fallback_plans=[fallback],
    )  # fmt: skip
    for name, said in (
        ("step-009", "mission 1 has no step step-009; did you mean 'step-002'?"),
        ("step-001", "step-001 is a step of 2 plans of mission 1: jobs 1, 3"),
        ("step-002", "step-002 of mission 1 has not begun; it is skipped"),
    ):
        with pytest.raises(LcpError, match=re.escape(said)):
            lab.engine.fork(1, step=name)
    for given in ({}, {"turn": 1, "step": "step-001"}, {"step": "step-001", "reply": "{}"}):
        with pytest.raises(LcpError) as refused:
            lab.engine.fork(1, **given)
        assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(LcpError, match="--step forks at a step of its plan"):
        lab.engine.fork(1, turn=1)
    forked = lab.engine.fork(1, step="1").id
    lab.work()
    assert lab.mission(forked).outcome == "plan_complete"
    same_again(lab, forked)


def test_a_plan_is_forked_before_and_in_its_fallback(lab: Lab) -> None:
    replies: list[JsonValue] = [
        {"ok": True, "action": "analysis_result", "summary": text} for text in ("One.", "Two.")
    ]
    scribe: Object = {"type": "scribe", "log": str(lab.log), "replies": replies}
    asks = step(1, "agent_plan", parameters={"user_prompt": "Sum up."})
    fallback: Object = {
        "id": FALLBACK,
        "steps": [asks, step(2, parameters={"of": "$output.step-001.summary"})],
    }
    first = run(
        lab, asks, step(2, "fail", dependencies=after(1)), on_failure="execute_fallback",
        fallback_plans=[fallback], planner=scribe,
    )  # fmt: skip
    for turn, plans in ((1, 1), (2, 2)):
        forked = lab.engine.fork(1, turn=turn).id
        assert len(lab.engine.plan_graphs(forked)) == plans
        lab.work()
        mission = lab.mission(forked)
        assert (mission.outcome, mission.summary) == (first.outcome, first.summary)
        assert states(lab, forked) == states(lab)
        same_again(lab, forked)


def test_an_execution_takes_no_longer_than_its_plan_says(lab: Lab) -> None:
    is_over = Event()
    lab.meanwhile.append(lambda: is_over.wait(30))
    launch(lab, step(1, timeout_ms=50, retry={"max_attempts": 1}))
    lab.work()
    is_over.set()
    assert error_code(lab, 1) == "TIMEOUT"
    assert "did not end within 0.05 s" in str(lab.mission().summary)


def test_an_aborted_plan_ends_what_its_steps_have_begun(lab: Lab) -> None:
    asks: JsonValue = {
        "ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "change", "params": {"of": "a"}}],
    }  # fmt: skip
    scribe: Object = {"type": "scribe", "log": str(lab.log), "replies": [asks]}
    run(
        lab,
        step(1, "agent_plan", parameters={"user_prompt": "Change it."}),
        step(2, "change"),
        step(3, dependencies=after(1)),
        planner=scribe,
    )
    assert (lab.mission().status, states(lab)) == ("waiting", ["blocked", "held", "blocked", "held"])
    lab.engine.reject(2, "no")
    assert (lab.mission().outcome, states(lab)[:3]) == ("job_failed", ["skipped", "rejected", "skipped"])
    same_again(lab)
