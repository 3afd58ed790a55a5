"""Missions whose planner answers in the dialect `universal`: the same loop, reply by reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.api.read_reply import read_reply
from lcp_engine.core.protocol.actions import Malformed, MissionComplete
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

    from lcp_engine.store.queries.records import Job

UNIVERSAL: Object = {"dialect": "universal"}


def respond(kind: str, status: str = "success", message: str = "m", **parts: JsonValue) -> Object:
    return {"response_type": kind, "status": status, "message": message, **parts}


def lcp(action: str, **fields: JsonValue) -> Object:
    """A custom response that holds an LCP action."""
    return respond("custom", custom_fields={"lcp": {"ok": True, "action": action, **fields}})


ANSWER = respond("answer", message="It is a library.")


def test_a_mission_in_the_dialect_universal_runs_to_its_end(lab: Lab) -> None:
    jobs: JsonValue = [{"kind": "do", "params": {"of": "a"}}]
    mission = lab.run(lcp("create_followup_jobs", new_jobs=jobs), ANSWER, planner=UNIVERSAL)
    assert (mission.outcome, mission.summary) == ("mission_complete", "It is a library.")
    assert lab.states() == ["succeeded"]
    assert [question.dialect for question in lab.questions] == ["universal", "universal"]


def test_a_reply_in_another_dialect_is_corrected_in_the_words_of_this_one(lab: Lab) -> None:
    mission = lab.run({"ok": True, "action": "mission_complete", "summary": "x"}, ANSWER, planner=UNIVERSAL)
    assert mission.outcome == "mission_complete"
    assert "response_type" in {error["path"] for error in lab.questions[1].correction.errors}


def test_a_script_that_has_run_out_says_so_in_its_dialect(lab: Lab) -> None:
    mission_id = lab.engine.launch(
        {"goal": "Find out.", "planner": {"type": "script", "replies": [], "dialect": "universal"}},
        root=lab.root,
    ).id
    lab.work()
    mission = lab.mission(mission_id)
    assert (mission.outcome, mission.error["error_code"]) == ("error", "SCRIPT_EXHAUSTED")


@pytest.mark.parametrize(
    ("planner", "said"),
    [
        ({"type": "script", "replies": [], "dialect": "esperanto"}, "'lcp' or 'universal'"),
        ({"type": "surveyor", "dialect": "universal"}, "'surveyor' answers in 'lcp' alone"),
    ],
)
def test_a_dialect_that_the_planner_does_not_speak_is_refused_at_launch(
    lab: Lab, planner: Object, said: str
) -> None:
    with pytest.raises(LcpError, match=said) as refused:
        lab.engine.launch({"goal": "Find out.", "planner": planner}, root=lab.root)
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert lab.engine.missions() == []


def test_a_program_reads_a_reply_in_the_dialect_that_it_names() -> None:
    text = '{"response_type": "answer", "status": "success", "message": "m"}'
    assert isinstance(read_reply(text, dialect="universal"), MissionComplete)
    assert isinstance(read_reply(text), Malformed)
    with pytest.raises(LcpError, match="'lcp' or 'universal'; found 'esperanto'"):
        read_reply(text, dialect="esperanto")


def plan(*actions: str) -> Object:
    """A plan with a step for each of `actions`."""
    steps: JsonValue = [{"step_number": place, "action": action} for place, action in enumerate(actions, 1)]
    return respond("planning", planning_data={"summary": "The plan.", "steps": steps})


def steps(lab: Lab) -> list[str]:
    """What became of each step, in order."""
    return [f"{job.name}: {job.state}" for job in step_jobs(lab)]


def step_jobs(lab: Lab) -> list[Job]:
    return [job for job in lab.engine.jobs(kinds=["agent_plan"]) if job.params.get("scope") == "step"]


def asked(lab: Lab) -> list[str]:
    """The first line of each question."""
    return [question.prompt.splitlines()[0] for question in lab.questions]


LOOK = respond("research", message="It has three modules.")
FAIL = respond("error", "error", "The disk is gone.")


def test_a_plan_is_carried_out_step_by_step(lab: Lab) -> None:
    actions = ["Look", "Read", "Write", "Check", "Mend", "Report"]
    mission = lab.run(plan(*actions), *[LOOK] * 6, ANSWER, planner=UNIVERSAL)
    assert mission.outcome == "mission_complete"
    assert steps(lab) == [f"{action}: succeeded" for action in actions]
    told = [f"Step {place} of 6: {action}" for place, action in enumerate(actions, 1)]
    assert asked(lab) == ["Find out.", *told, "Find out."]
    assert [question.of_step for question in lab.questions] == [False, *[True] * 6, False]
    assert [result.result for result in lab.questions[-1].results] == [
        {"ok": True, "action": "analysis_result", "summary": "It has three modules."}
    ] * 6


def test_a_step_begins_when_the_plan_of_the_one_before_has_ended(lab: Lab) -> None:
    jobs: JsonValue = [{"kind": "change", "params": {"of": "a"}}]
    lab.run(plan("Write", "Check"), lcp("create_followup_jobs", new_jobs=jobs), planner=UNIVERSAL)
    assert lab.mission().status == "waiting"
    assert [(job.state, job.reason) for job in step_jobs(lab)] == [
        ("blocked", None), ("blocked", "step_order"),
    ]  # fmt: skip


def test_with_a_turn_for_each_result_the_next_step_still_comes_first(lab: Lab) -> None:
    lab.run(plan("A", "B"), LOOK, LOOK, ANSWER, planner=UNIVERSAL, each_result=True)
    assert asked(lab) == ["Find out.", "Step 1 of 2: A", "Step 2 of 2: B", "Find out."]
    assert [result.state for result in lab.questions[3].results] == ["succeeded", "succeeded"]


def test_behind_a_step_that_fails_the_rest_is_skipped_and_the_planner_reads_why(lab: Lab) -> None:
    mission = lab.run(plan("Look", "Read", "Write", "Check"), LOOK, FAIL, ANSWER, planner=UNIVERSAL)
    assert mission.outcome == "mission_complete"
    assert steps(lab) == ["Look: succeeded", "Read: failed", "Write: skipped", "Check: skipped"]
    _, failed, skipped, last = step_jobs(lab)
    assert skipped.reason == f"job {failed.id}, the step before it, failed"
    assert last.reason == f"job {skipped.id}, the step before it, was skipped"
    assert [result.state for result in lab.questions[-1].results] == [
        "succeeded", "failed", "skipped", "skipped",
    ]  # fmt: skip


def test_a_step_that_failed_is_retried_and_the_rest_follows(lab: Lab) -> None:
    hold: JsonValue = [{"kind": "change", "params": {"of": "a"}}]
    waits = lcp("create_followup_jobs", new_jobs=hold)
    lab.run(plan("Look", "Read", "Write"), FAIL, waits, LOOK, LOOK, LOOK, ANSWER, planner=UNIVERSAL)
    assert steps(lab) == ["Look: failed", "Read: skipped", "Write: skipped"]
    look, read, _ = step_jobs(lab)
    with pytest.raises(LcpError, match=f"job {read.id} follows job {look.id}, which is failed"):
        lab.engine.retry(read.id)
    lab.engine.retry(look.id)
    lab.work()
    assert steps(lab) == ["Look: succeeded", "Read: succeeded", "Write: succeeded"]
    assert asked(lab)[3:] == ["Step 1 of 3: Look", "Step 2 of 3: Read", "Step 3 of 3: Write", "Find out."]
    assert lab.questions[3].notices == ["a person retried this step; before, it was failed"]
    assert lab.mission().outcome == "mission_complete"


def test_a_step_of_a_plan_that_is_over_is_not_retried(lab: Lab) -> None:
    lab.run(plan("Look", "Read"), FAIL, ANSWER, planner=UNIVERSAL)
    with pytest.raises(LcpError, match="`lcp resume 1` asks the planner again"):
        lab.engine.retry(step_jobs(lab)[0].id)


def test_steps_that_policy_holds_wait_each_for_a_person_and_for_the_one_before(lab: Lab) -> None:
    held: JsonValue = [{"kinds": ["agent_plan"], "do": "hold"}]
    lab.run(plan("Look", "Read", "Write"), LOOK, LOOK, ANSWER, planner=UNIVERSAL, policy=held)
    assert steps(lab) == ["Look: held", "Read: held", "Write: held"]
    look, read, write = (job.id for job in step_jobs(lab))
    lab.engine.approve(read)
    assert [(job.state, job.reason) for job in step_jobs(lab)][1] == ("blocked", "step_order")
    assert lab.mission().status == "waiting"
    lab.engine.approve(look)
    lab.work()
    assert steps(lab) == ["Look: succeeded", "Read: succeeded", "Write: held"]
    lab.engine.reject(write, "not now")
    lab.work()
    assert steps(lab)[2] == "Write: rejected"
    assert lab.mission().outcome == "mission_complete"


def test_rejecting_a_step_skips_those_behind_it(lab: Lab) -> None:
    held: JsonValue = [{"kinds": ["agent_plan"], "do": "hold"}]
    lab.run(plan("Look", "Read"), ANSWER, planner=UNIVERSAL, policy=held)
    look = step_jobs(lab)[0].id
    lab.engine.reject(look, "not now")
    assert [(job.state, job.reason) for job in step_jobs(lab)] == [
        ("rejected", "not now"), ("skipped", f"job {look}, the step before it, was rejected"),
    ]  # fmt: skip
    lab.work()
    assert lab.mission().outcome == "mission_complete"


def test_steps_above_max_jobs_are_refused_and_those_below_are_carried_out(lab: Lab) -> None:
    lab.run(plan("Look", "Read", "Write"), LOOK, LOOK, ANSWER, planner=UNIVERSAL, limits={"max_jobs": 2})
    assert steps(lab) == ["Look: succeeded", "Read: succeeded", "Write: rejected"]
    assert lab.mission().outcome == "mission_complete"


def test_a_limit_skips_the_steps_that_were_not_asked_yet(lab: Lab) -> None:
    mission = lab.run(plan("Look", "Read", "Write"), LOOK, ANSWER, planner=UNIVERSAL, limits={"max_turns": 2})
    assert steps(lab) == ["Look: succeeded", "Read: cancelled", "Write: skipped"]
    assert (mission.outcome, lab.questions[-1].last_turn) == ("mission_complete", "max_turns")


def test_steps_within_a_step_come_before_the_next_one(lab: Lab) -> None:
    mission = lab.run(plan("A", "B"), plan("A1", "A2"), LOOK, LOOK, ANSWER, LOOK, ANSWER, planner=UNIVERSAL)
    assert mission.outcome == "mission_complete"
    assert asked(lab) == [
        "Find out.", "Step 1 of 2: A", "Step 1 of 2: A1", "Step 2 of 2: A2", "Step 1 of 2: A", "Step 2 of 2: B",
        "Find out.",
    ]  # fmt: skip


def test_the_end_of_a_mission_skips_the_steps_that_wait(lab: Lab) -> None:
    lab.run(plan("Look", "Read"), FAIL, planner=UNIVERSAL, on_job_failure="fail")
    assert lab.mission().outcome == "job_failed"
    assert steps(lab) == ["Look: failed", "Read: skipped"]


UNCLEAR = respond(
    "clarity", "needs_clarification", "Which part?", clarity_data={"follow_up_questions": ["A?", "B?"]}
)


def test_a_question_waits_for_a_person_whose_answer_the_planner_reads(lab: Lab) -> None:
    mission = lab.run(UNCLEAR, ANSWER, planner=UNIVERSAL)
    assert mission.status == "waiting"
    (job,) = lab.jobs()
    assert (job.kind, job.state, job.params) == (
        "ask_user",
        "held",
        {"question": "Which part?\n1. A?\n2. B?"},
    )
    lab.engine.answer(job.id, "The first, and no B.")
    lab.work()
    (result,) = lab.questions[1].results
    assert result.result is not None
    assert result.result["answer"] == "The first, and no B."
    assert lab.mission().outcome == "mission_complete"


def test_the_sixth_round_of_questions_ends_the_plan(lab: Lab) -> None:
    rounds = [{**UNCLEAR, "message": f"Which part, {number}?"} for number in range(6)]
    mission_id = lab.launch(*rounds, planner=UNIVERSAL)
    for _ in range(5):
        lab.work()
        (held,) = [job for job in lab.jobs() if job.state == "held"]
        lab.engine.answer(held.id, "All of it.")
    lab.work()
    mission = lab.mission(mission_id)
    assert (mission.status, mission.outcome) == ("failed", "error")
    assert mission.error["error_code"] == "CLARIFICATION_EXHAUSTED"
    assert len(lab.jobs()) == 5


def test_a_low_score_asks_a_person_instead_of_ending_the_mission(lab: Lab) -> None:
    data: JsonValue = {"total_score": 35, "follow_up_questions": [f"Question {n}?" for n in range(1, 6)]}
    mission = lab.run(respond("clarity", clarity_data=data), ANSWER, planner=UNIVERSAL)
    assert mission.status == "waiting"
    (job,) = lab.jobs()
    assert str(job.params["question"]).splitlines()[1:] == [
        "Rated 35 of 100; clear from 85 on.", *(f"{n}. Question {n}?" for n in range(1, 6)),
    ]  # fmt: skip


def test_an_empty_plan_ends_the_mission_like_a_reply_without_jobs(lab: Lab) -> None:
    mission = lab.run(
        respond("planning", message="All is there.", planning_data={"steps": []}), planner=UNIVERSAL
    )
    assert (mission.status, mission.outcome, mission.summary) == (
        "completed", "no_followup_jobs", "All is there.",
    )  # fmt: skip


SEED = json.loads(
    (Path(__file__).parents[1] / "core" / "protocol" / "seed_000.json").read_text(encoding="utf-8")
)
NOTES = ("response_type", "status")


@pytest.mark.parametrize(("kind", "section"), [
    ("verification", "verification_data"), ("answer", "answer_data"), ("research", "research_data"),
])  # fmt: skip
def test_what_a_response_says_of_itself_stays_typed_in_the_mission(lab: Lab, kind: str, section: str) -> None:
    example = next(one for one in SEED["examples"] if one["response_type"] == kind)
    stated = {key: value for key, value in example[section].items() if key != "findings"}
    expected = {**{key: example[key] for key in NOTES}, **stated}
    mission = lab.run(example, planner=UNIVERSAL)
    assert (mission.status, mission.assessment) == ("completed", expected)
    assert mission.json["assessment"] == expected
    (told,) = lab.rows("SELECT assessment FROM mission_overview")
    assert json.loads(str(told[0])) == expected


def test_scores_and_failed_checks_stay_typed_in_the_result_of_their_turn(lab: Lab) -> None:
    (unclear,) = [one for one in SEED["examples"] if one["response_type"] == "clarity"]
    failed: Object = {"checks": [{"criterion": "c", "passed": False, "note": "n"}]}
    mission = lab.run(respond("verification", "FAIL", verification_data=failed), unclear, planner=UNIVERSAL)
    assert (mission.status, mission.assessment) == ("waiting", {})
    told = [json.loads(str(row[0])) for row in lab.rows(
        "SELECT result FROM job_history WHERE kind = 'agent_plan' AND result IS NOT NULL ORDER BY id"
    )]  # fmt: skip
    assert {"response_type": "verification", "status": "FAIL", **failed} in [
        one.get("assessment") for one in told
    ]
    scores = {**{key: unclear[key] for key in NOTES}, **unclear["clarity_data"]}
    assert scores in [one.get("assessment") for one in told]


OPEN = respond("answer", message="It is a library.", answer_data={"follow_up_needed": True})


def answer_held(lab: Lab, text: str) -> None:
    (held,) = [job for job in lab.jobs() if job.state == "held"]
    lab.engine.answer(held.id, text)
    lab.work()


def test_an_answer_that_needs_a_follow_up_ends_the_mission_once_a_person_says_so(lab: Lab) -> None:
    assert lab.run(OPEN, planner=UNIVERSAL).status == "waiting"
    (job,) = lab.jobs()
    assert (job.kind, job.params["options"]) == ("ask_user", ["this is enough", "follow it up"])
    assert str(job.params["question"]).startswith("It is a library.\n\nThe planner says")
    answer_held(lab, "this is enough")
    mission = lab.mission()
    assert (mission.status, mission.outcome, mission.summary) == (
        "completed", "mission_complete", "It is a library.",
    )  # fmt: skip
    assert len(lab.questions) == 1


@pytest.mark.parametrize("said", ["follow it up", "Of whom?"])
def test_the_planner_reads_what_a_person_says_to_its_answer(lab: Lab, said: str) -> None:
    assert lab.run(OPEN, ANSWER, planner=UNIVERSAL).status == "waiting"
    answer_held(lab, said)
    (result,) = lab.questions[1].results
    assert result.result is not None
    assert result.result["answer"] == said
    assert lab.mission().outcome == "mission_complete"


def test_an_answer_is_not_lost_when_a_person_was_asked_often_enough(lab: Lab) -> None:
    lab.run(*[OPEN] * 6, planner=UNIVERSAL)
    for _ in range(5):
        answer_held(lab, "follow it up")
    mission = lab.mission()
    assert (mission.status, mission.outcome) == ("completed", "mission_complete")


def test_an_answer_that_needs_a_follow_up_is_the_end_in_the_last_turn(lab: Lab) -> None:
    jobs: JsonValue = [{"kind": "do", "params": {"of": "a"}}]
    mission = lab.run(
        lcp("create_followup_jobs", new_jobs=jobs), OPEN, planner=UNIVERSAL, limits={"max_turns": 1}
    )
    assert (mission.status, mission.outcome) == ("completed", "mission_complete")


def test_an_answer_that_needs_a_follow_up_is_the_end_where_policy_lets_nobody_be_asked(lab: Lab) -> None:
    mission = lab.run(OPEN, planner=UNIVERSAL, policy=[{"kinds": ["ask_user"], "do": "deny"}])
    assert (mission.status, mission.outcome) == ("completed", "mission_complete")
    assert lab.jobs() == []


def test_a_step_whose_answer_needs_a_follow_up_waits_for_a_person(lab: Lab) -> None:
    lab.run(plan("Look", "Report"), OPEN, LOOK, ANSWER, planner=UNIVERSAL)
    assert steps(lab) == ["Look: blocked", "Report: blocked"]
    answer_held(lab, "this is enough")
    assert steps(lab) == ["Look: succeeded", "Report: succeeded"]
    assert lab.mission().outcome == "mission_complete"


def test_what_is_not_read_is_stored_and_told_to_the_planner(lab: Lab) -> None:
    jobs: JsonValue = [{"kind": "do", "params": {"of": "a"}}]
    first = lcp("create_followup_jobs", new_jobs=jobs) | {"answer_data": {"confidence": "high"}}
    lab.run(first, ANSWER, planner=UNIVERSAL)
    said = "answer_data: not read in a response of the type custom with the status success, ignored"
    assert lab.questions[1].warnings == [said]
    assert [turn["warnings"] for turn in lab.engine.turns(1)] == [[said], None]


def verdict(status: str, *checks: tuple[str, bool]) -> Object:
    listed: JsonValue = [{"criterion": criterion, "passed": passed} for criterion, passed in checks]
    return respond("verification", status, f"Verdict: {status}", verification_data={"checks": listed})


def test_failed_checks_lead_to_a_turn_that_names_them(lab: Lab) -> None:
    failed = verdict("FAIL", ("A is there", True), ("B is there", False))
    mission = lab.run(failed, verdict("PASS", ("B is there", True)), planner=UNIVERSAL)
    assert mission.outcome == "mission_complete"
    assert "- B is there" in lab.questions[1].prompt
    assert "A is there" not in lab.questions[1].prompt


def test_after_three_cycles_of_verification_a_person_is_asked_and_the_planner_reads_the_answer(
    lab: Lab,
) -> None:
    failed = [verdict("FAIL", (f"B{number} is there", False)) for number in range(4)]
    mission_id = lab.launch(*failed, verdict("FAIL", ("C is there", False)), ANSWER, planner=UNIVERSAL)
    lab.work()
    assert lab.mission(mission_id).status == "waiting"
    (job,) = lab.jobs()
    assert (job.kind, job.state) == ("ask_user", "held")
    assert str(job.params["question"]).startswith("The work was verified 4 times and did not pass.")
    assert "- B3 is there" in str(job.params["question"])
    lab.engine.answer(job.id, "finish")
    lab.work()
    (result,) = lab.questions[4].results
    assert result.result is not None
    assert result.result["answer"] == "finish as it is"
    assert lab.mission(mission_id).outcome == "mission_complete"
