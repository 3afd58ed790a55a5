"""Planners that answer with an ExecutionPlan: the same steps and edges, within the caps, and its end is a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.core.limits.terms import terms_of
from lcp_engine.errors import LcpError
from lcp_engine.features.check.store.examination import check_database

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

    from lcp_engine.store.queries.records import Job, Mission

PLACE = "custom_fields.execution_plan"
ANSWER: Object = {"response_type": "answer", "status": "success", "message": "It is done."}


def step(number: int, tool: str = "do", **more: JsonValue) -> Object:
    parameters = more.pop("parameters", {"of": number})
    return {"id": f"step-{number:03}", "tool": tool, "parameters": parameters, **more}


def after(*numbers: int) -> list[JsonValue]:
    return [f"step-{number:03}" for number in numbers]


def plan(*steps: Object, **more: JsonValue) -> Object:
    fields: Object = {"execution_plan": {"steps": [*steps], **more}}
    return {"response_type": "custom", "status": "success", "message": "In steps.", "custom_fields": fields}


def run(lab: Lab, *replies: Object, **spec: JsonValue) -> Mission:
    lab.launch(*replies, planner={"dialect": "universal"}, each_result=False, **spec)
    lab.work()
    return lab.mission()


def steps_of(lab: Lab, mission: int = 1) -> list[Job]:
    return [job for job in lab.engine.jobs(mission_id=mission) if job.kind != "agent_plan"]


def errors_of(lab: Lab, question: int = 1) -> list[tuple[str, str]]:
    return [(error["path"], error["message"]) for error in lab.questions[question].correction.errors]


def same_again(lab: Lab, mission: int = 1) -> None:
    replayed = lab.engine.replay(mission)
    assert (replayed.is_same, replayed.stopped) == (True, None), replayed.differences
    assert check_database(lab.url, kept_bytes=10) == []


def test_the_steps_run_after_each_other_and_the_planner_reads_what_came_of_them(lab: Lab) -> None:
    answered = plan(
        step(3, dependencies=after(1, 2), parameters={"of": "$output.step-001.done"}), step(1), step(2)
    )
    mission = run(lab, answered, ANSWER)
    assert (mission.outcome, mission.summary, mission.turns) == ("mission_complete", "It is done.", 2)
    assert [job.state for job in steps_of(lab)] == ["succeeded"] * 3
    assert steps_of(lab)[2].params == {"of": True}
    (seen,) = lab.questions[1].results
    assert (seen.state, lab.dig(seen.result, "summary")) == ("succeeded", "3 of 3 steps succeeded")
    assert lab.dig(seen.result, "steps", 2, "result") == {"done": True}
    same_again(lab)


def test_jobs_with_dependencies_and_a_plan_beside_the_action_run_like_it(lab: Lab) -> None:
    jobs: list[JsonValue] = [
        {"id": "b", "kind": "do", "params": {"of": "$output.a.done"}, "dependencies": ["a"]},
        {"id": "a", "name": "First", "kind": "tool-do", "params": {}},
    ]
    denied: list[JsonValue] = [*jobs, {"kind": "change", "params": {}}]
    plain: Object = {"ok": True, "action": "create_followup_jobs"}
    done: Object = {"ok": True, "action": "mission_complete", "summary": "Done."}
    rules: list[JsonValue] = [{"kinds": ["change"], "do": "deny"}]
    planned: Object = {
        **plain,
        "execution_plan": {"steps": [step(1, "fail"), step(2, dependencies=after(1))]},
    }
    lab.launch({**plain, "new_jobs": denied}, {**plain, "new_jobs": jobs}, planned, done, policy=rules)
    lab.work()
    assert errors_of(lab)[0][0] == "new_jobs[2]"
    assert [(job.kind, job.state) for job in steps_of(lab)] == [
        ("do", "succeeded"), ("do", "succeeded"), ("fail", "failed"), ("do", "skipped"),
    ]  # fmt: skip
    assert lab.engine.job(steps_of(lab)[1].id).params == {"of": True}
    assert lab.mission().outcome == "mission_complete"
    same_again(lab)


def test_a_plan_that_fails_is_a_result_and_not_the_end_of_the_mission(lab: Lab) -> None:
    mission = run(lab, plan(step(1, "fail"), step(2, dependencies=after(1))), ANSWER)
    assert mission.outcome == "mission_complete"
    assert [job.state for job in steps_of(lab)] == ["failed", "skipped"]
    (seen,) = lab.questions[1].results
    assert (seen.state, seen.error_code) == ("failed", "WORKER_FAILED")
    same_again(lab)


@pytest.mark.parametrize(
    ("answered", "path", "said"),
    [
        (plan(step(1, dependencies=after(2))), "steps[0].dependencies[0]", "step-002 is not a step"),
        (plan(step(1), step(1)), "steps[1].id", "step-001 is the id of steps[0], too"),
        (plan(step(1, dependencies=after(1))), "steps[0].dependencies[0]", "step-001 waits for itself"),
        (plan(step(1, "dig")), "steps[0].tool", "no worker executes the kind 'dig'"),
        (plan(step(1, "read_file", parameters={})), "steps[0].parameters", ""),
        (plan(step(1, parameters={"of": "$output.9"})), "steps[0].parameters.of", "is not a reference"),
        (plan(step(1), error_handling={"on_step_failure": "execute_fallback", "fallback_plan_id": "p"}),
         "error_handling.on_step_failure", "the plan of a planner has no fallback"),
        (plan(step(1), steps_more=1), "steps_more", "unknown"),
        (plan(), "steps", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_plan_is_corrected_with_its_place(
    lab: Lab, answered: Object, path: str, said: str
) -> None:
    mission = run(lab, answered, ANSWER)
    assert mission.outcome == "mission_complete"
    assert steps_of(lab) == []
    (found, message), *_ = errors_of(lab)
    assert found.startswith(f"{PLACE}.{path}")
    assert said in message


def test_a_plan_is_an_object_and_no_action_is_beside_it(lab: Lab) -> None:
    both, text = plan(step(1)), plan(step(1))
    assert isinstance(both["custom_fields"], dict)
    both["custom_fields"]["lcp"] = {"ok": True, "action": "mission_complete", "summary": "x"}
    text["custom_fields"] = {"execution_plan": "first this, then that"}
    run(lab, both, text, ANSWER)
    assert errors_of(lab) == [
        (PLACE, "a response holds an action (lcp) or a plan (execution_plan), not both")
    ]
    assert errors_of(lab, 2) == [(PLACE, "an execution plan is an object with steps")]


def test_caps_hold_for_the_steps_of_a_planner(lab: Lab) -> None:
    deep = step(3, "agent_plan", parameters={"user_prompt": "More."})
    run(lab, plan(step(1), step(2), deep), ANSWER, limits={"max_jobs": 1, "max_depth": 0})
    assert errors_of(lab) == [
        (f"{PLACE}.steps", "the plan has 3 steps, and max_jobs = 1 leaves 1"),
        (f"{PLACE}.steps[2]", "it is not allowed: plans may nest max_depth = 0 deep; this one is 1 deep"),
    ]
    assert steps_of(lab) == []


def test_a_plan_that_only_repeats_is_no_progress(lab: Lab) -> None:
    mission = run(lab, *[plan(step(1), step(2))] * 4)
    assert (mission.outcome, len(steps_of(lab))) == ("no_progress", 6)
    same_again(lab)


def test_policy_decides_about_each_step_and_a_person_is_asked(lab: Lab) -> None:
    answered = plan(step(1), step(2, "change", dependencies=after(1)))
    mission = run(lab, answered, ANSWER)
    assert (mission.status, [job.state for job in steps_of(lab)]) == ("waiting", ["succeeded", "held"])
    lab.engine.approve(steps_of(lab)[1].id)
    lab.work()
    assert lab.mission().outcome == "mission_complete"
    same_again(lab)


def test_what_a_person_rejected_is_refused_as_a_step_too(lab: Lab) -> None:
    first = plan(step(1, "change", parameters={"of": True}))
    hidden = plan(step(1), step(2, "change", parameters={"of": "$output.step-001.done"}))
    run(lab, first, first, hidden, ANSWER)
    lab.engine.reject(steps_of(lab)[0].id, "not this")
    lab.work()
    ((path, message),) = errors_of(lab, 2)
    assert path == f"{PLACE}.steps[0]"
    assert "not this" in message
    assert [job.state for job in steps_of(lab)] == ["rejected", "succeeded", "failed"]
    assert lab.mission().outcome == "mission_complete"
    same_again(lab)


def test_a_question_that_a_person_has_answered_is_not_asked_again(lab: Lab) -> None:
    asks = plan(step(1), step(2, "ask_user", parameters={"question": "Is it $output.step-001.done?"}))
    run(lab, asks, asks, ANSWER)
    lab.engine.answer(steps_of(lab)[1].id, "yes", by="ada")
    lab.work()
    assert [job.state for job in steps_of(lab)] == ["succeeded", "succeeded", "succeeded", "failed"]
    said = lab.dig(steps_of(lab)[3].json["error"], "user_message")
    assert said == "job 8 (ask_user) is not allowed: it equals job 4, which ada answered: yes"
    same_again(lab)


def write(number: int, path: str, content: str, **more: JsonValue) -> Object:
    return step(number, "write_file", parameters={"path": path, "content": content}, **more)


def test_what_a_step_writes_counts_once_its_references_are_known(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("x" * 60)
    reads = step(1, "read_file", parameters={"path": "a.txt"})
    copies = write(3, "b.txt", "$output.step-001.content", dependencies=after(1, 2))
    rule: Object = {"kinds": ["write_file"], "do": "auto"}
    run(
        lab,
        plan(reads, write(2, "c.txt", "y" * 50), copies),
        plan(reads, write(2, "c.txt", "y" * 40), copies),
        ANSWER,
        policy=[rule],
        limits={"max_bytes_written": 100},
    )
    assert [job.state for job in steps_of(lab)[:3]] == ["succeeded", "succeeded", "failed"]
    error = steps_of(lab)[2].json["error"]
    assert lab.dig(error, "error_code") == "LIMIT_REACHED"
    said = "max_bytes_written = 100 bytes, has 50 left and this job needs 60"
    assert str(lab.dig(error, "user_message")).endswith(said)
    assert not (lab.root / "b.txt").exists()
    same_again(lab)


def test_what_the_steps_of_a_plan_would_write_counts_when_it_is_stated(lab: Lab) -> None:
    run(
        lab,
        plan(write(1, "a.txt", "x" * 60), write(2, "b.txt", "y" * 41)),
        ANSWER,
        limits={"max_bytes_written": 100},
    )
    ((path, message),) = errors_of(lab)
    assert (path, message.endswith("has 40 left and this job needs 41")) == (f"{PLACE}.steps[1]", True)


def test_a_step_that_failed_before_it_was_known_what_it_writes_is_unfulfilled(lab: Lab) -> None:
    lost = write(2, "a.txt", "$output.step-001.nothing")
    mission = run(lab, plan(step(1), lost), ANSWER)
    assert mission.unfulfilled == [steps_of(lab)[1].id]
    forked = lab.engine.fork(1, turn=2).id
    lab.work()
    assert lab.mission(forked).unfulfilled == [steps_of(lab, forked)[1].id]
    same_again(lab, forked)


def test_a_later_job_makes_good_what_a_step_did_not_write(lab: Lab) -> None:
    lost, again = write(2, "a.txt", "$output.step-001.nothing"), write(1, "a.txt", "text")
    mission = run(lab, plan(step(1), lost), plan(again), ANSWER, policy=[{"kinds": ["*"], "do": "auto"}])
    assert (mission.unfulfilled, (lab.root / "a.txt").read_text()) == ([], "text")
    same_again(lab)


@pytest.mark.parametrize(("most", "attempts"), [(9, 3), (2, 2), (1, 1)])
def test_a_planner_gets_no_more_attempts_than_the_kind_gives(lab: Lab, most: int, attempts: int) -> None:
    lab.failures["flaky"] = 9
    retry: Object = {"max_attempts": most, "delay_ms": 0}
    run(lab, plan(step(1, "flaky", retry=retry)), ANSWER)
    assert (steps_of(lab)[0].state, steps_of(lab)[0].attempt) == ("failed", attempts)
    same_again(lab)


def test_what_the_kind_does_not_try_again_a_planner_does_not_either(lab: Lab) -> None:
    run(lab, plan(step(1, "fail", retry={"max_attempts": 3, "delay_ms": 0})), ANSWER)
    assert steps_of(lab)[0].attempt == 1


def test_times_of_a_planner_hold_within_those_of_the_kind(lab: Lab) -> None:
    retry: Object = {"max_attempts": 2, "delay_ms": 0}
    slow: Object = {"max_attempts": 2, "delay_ms": 5_000}
    long = 86_400_000
    kinds: Object = {"do": {"timeout": 7, "retry": {"max_attempts": 2, "delay": 2}}}
    run(
        lab,
        plan(step(1, timeout_ms=long, retry=retry), step(2, timeout_ms=50, retry=slow), step(3)),
        ANSWER,
        kinds=kinds,
    )
    stored = lab.rows("SELECT terms FROM jobs WHERE terms IS NOT NULL ORDER BY id")
    found = [terms_of(str(row[0])) for row in stored]
    assert [(terms.delay_ms, terms.timeout_ms) for terms in found] == [
        (2_000, 7_000),
        (5_000, 50),
        (None, None),
    ]


def test_with_continue_plan_the_rest_goes_on_and_the_planner_reads_what_is_missing(lab: Lab) -> None:
    handling: Object = {"on_step_failure": "continue_plan"}
    run(
        lab,
        plan(step(1, "fail"), step(2), step(3, dependencies=after(1)), error_handling=handling),
        ANSWER,
    )
    assert [job.state for job in steps_of(lab)] == ["failed", "succeeded", "skipped"]
    (seen,) = lab.questions[1].results
    assert (seen.state, lab.dig(seen.result, "action")) == ("succeeded", "plan_incomplete")
    assert "1 of 3 steps succeeded, 1 failed, 1 skipped" in str(lab.dig(seen.result, "summary"))
    same_again(lab)


def test_long_results_are_told_as_far_as_there_is_room(lab: Lab) -> None:
    (lab.root / "long.txt").write_text("x" * 60_000)
    reads = [step(n, "read_file", parameters={"path": "long.txt"}) for n in (1, 2)]
    run(lab, plan(*reads, step(3)), ANSWER)
    (owner,) = [job for job in lab.engine.jobs(mission_id=1) if job.params.get("scope") == "step"]
    steps = lab.dig(owner.json["result"], "steps")
    assert isinstance(steps, list)
    told = [sorted(one) for one in steps if isinstance(one, dict)]
    assert told == [
        ["id", "result", "state"],
        ["id", "result_characters", "state"],
        ["id", "result", "state"],
    ]
    assert len(lab.questions[1].results) == 1
    same_again(lab)


def test_a_step_of_a_planner_may_ask_it_within_the_depth(lab: Lab) -> None:
    asks = step(1, "agent_plan", parameters={"user_prompt": "Which?"})
    uses = step(2, parameters={"of": "$output.step-001.summary"})
    mission = run(lab, plan(asks, uses), {**ANSWER, "message": "This."}, ANSWER)
    assert (mission.outcome, mission.turns, steps_of(lab)[0].params) == (
        "mission_complete",
        3,
        {"of": "This."},
    )
    same_again(lab)


def test_a_failed_plan_of_a_planner_is_continued_while_its_mission_goes_on(lab: Lab) -> None:
    lab.failures["flaky"] = 1
    answered = plan(step(1, "flaky", retry={"max_attempts": 1}), step(2, dependencies=after(1)))
    jobs: JsonValue = [{"kind": "change", "params": {"of": "a"}}]
    more: Object = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    held: Object = {**plan(), "custom_fields": {"lcp": more}}
    run(lab, answered, held, ANSWER, ANSWER)
    assert [job.state for job in steps_of(lab)] == ["failed", "skipped", "held"]
    owner = next(
        job for job in lab.engine.jobs(mission_id=1) if job.state == "failed" and job.kind == "agent_plan"
    )
    lab.engine.retry(owner.id)
    lab.work()
    assert [job.state for job in steps_of(lab)] == ["succeeded", "succeeded", "held"]
    assert lab.engine.job(owner.id).state == "succeeded"
    same_again(lab)


def test_a_step_of_a_failed_plan_is_continued_with_the_plan(lab: Lab) -> None:
    run(lab, plan(step(1, "fail")), plan(step(1, "change")), ANSWER)
    with pytest.raises(LcpError, match="a step of a plan that has ended: `lcp retry 2` continues it"):
        lab.engine.retry(3)


def test_a_cancelled_mission_goes_on_with_its_plan_where_it_stopped(lab: Lab) -> None:
    run(lab, plan(step(1), step(2, "change", dependencies=after(1)), step(3, dependencies=after(2))), ANSWER)
    lab.engine.cancel(1, by="ada")
    assert [job.state for job in steps_of(lab)] == ["succeeded", "cancelled", "cancelled"]
    lab.engine.resume(1)
    lab.work()
    assert [job.state for job in steps_of(lab)] == ["succeeded", "held", "blocked"]
    assert (lab.mission().status, lab.mission().turns) == ("waiting", 1)
    lab.engine.approve(steps_of(lab)[1].id)
    lab.work()
    assert [job.state for job in steps_of(lab)] == ["succeeded"] * 3
    assert (lab.mission().outcome, lab.mission().turns) == ("mission_complete", 2)
    same_again(lab)


def test_a_mission_that_reached_a_limit_goes_on_with_its_plan(lab: Lab) -> None:
    asks = step(2, "agent_plan", parameters={"user_prompt": "Which?"}, dependencies=after(1))
    uses = step(3, parameters={"of": "$output.step-002.summary"})
    mission = run(
        lab, plan(step(1), asks, uses), plan(step(1)), {**ANSWER, "message": "This."}, ANSWER,
        limits={"max_turns": 1},
    )  # fmt: skip
    assert (mission.outcome, [job.state for job in steps_of(lab)]) == (
        "limit:max_turns",
        ["succeeded", "cancelled"],
    )
    lab.engine.resume(1, limits={"max_turns": 9})
    lab.work()
    assert [(job.state, job.attempt) for job in steps_of(lab)] == [("succeeded", 1), ("succeeded", 1)]
    assert (lab.mission().outcome, steps_of(lab)[1].params) == ("mission_complete", {"of": "This."})
    same_again(lab)


def test_a_plan_within_a_step_of_a_plan_goes_on_too(lab: Lab) -> None:
    asks = step(1, "agent_plan", parameters={"user_prompt": "Look closer."})
    run(lab, plan(asks, step(2, dependencies=after(1))), plan(step(1, "change")), ANSWER, ANSWER)
    lab.engine.cancel(1, by="ada")
    lab.engine.resume(1)
    lab.work()
    assert [job.state for job in steps_of(lab)] == ["blocked", "held"]
    lab.engine.approve(steps_of(lab)[1].id)
    lab.work()
    assert [job.state for job in steps_of(lab)] == ["succeeded"] * 2
    assert lab.mission().outcome == "mission_complete"
    same_again(lab)


def test_every_turn_of_a_mission_with_plans_can_be_forked(lab: Lab) -> None:
    asks = step(2, "agent_plan", parameters={"user_prompt": "Which $output.step-001.done?"})
    first = plan(step(1), asks, step(3, parameters={"of": "$output.step-002.summary"}))
    run(lab, plan(step(9)), first, ANSWER, plan(step(1, "fail"), step(2, dependencies=after(1))), ANSWER)
    for turn in range(1, 6):
        forked = lab.engine.fork(1, turn=turn).id
        begun = [graph for graph in lab.engine.plan_graphs(forked) if graph.name is not None]
        assert len(begun) == (0, 1, 2, 2, 3)[turn - 1]
        lab.work()
        assert lab.mission(forked).outcome == "mission_complete"
        assert [(job.state, job.params) for job in steps_of(lab, forked)] == [
            (job.state, job.params) for job in steps_of(lab)
        ]
        same_again(lab, forked)


def test_a_fork_of_a_fork_knows_the_plans_of_both(lab: Lab) -> None:
    run(lab, plan(step(1)), plan(step(2, "change")), ANSWER)
    lab.engine.approve(steps_of(lab)[1].id)
    lab.work()
    second = lab.engine.fork(1, turn=3).id
    third = lab.engine.fork(second, turn=2).id
    lab.work()
    assert [job.state for job in steps_of(lab, second)] == ["succeeded", "succeeded"]
    assert [job.state for job in steps_of(lab, third)] == ["succeeded", "held"]
    same_again(lab, second)
