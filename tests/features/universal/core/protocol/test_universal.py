"""Replies in the universal agent schema are translated into the LCP actions that they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, JsonValue
from tests.tables import table

from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    Malformed,
    Manner,
    MissionComplete,
    WriteFile,
)
from lcp_engine.features.universal.dialect import read_universal
from lcp_engine.features.universal.response import PAIRS
from lcp_engine.features.universal.schema import strict_universal_schema, universal_schema
from lcp_engine.workers.registry import BUILT_IN

Body: TypeAlias = dict[str, JsonValue]

KINDS: dict[str, type[BaseModel]] = {kind: worker.params for kind, worker in BUILT_IN.items()}
SEED = json.loads((Path(__file__).parent / "seed_000.json").read_text(encoding="utf-8"))
CASES = Path(__file__).parents[6] / "shared" / "cases" / "replies.jsonl"
STATUSES = ("success", "needs_clarification", "error", "PASS", "FAIL", "PARTIAL")
PLAN: Body = {"response_type": "planning", "status": "success", "message": "m"}
STEPS: Body = {"steps": [{"step_number": 1, "action": "Look"}]}


def respond(kind: str, status: str, said: str = "m", **parts: JsonValue) -> Action | Malformed:
    return read_universal(
        json.dumps({"response_type": kind, "status": status, "message": said, **parts}), KINDS
    )


def jobs(action: Action | Malformed) -> CreateFollowupJobs:
    assert isinstance(action, CreateFollowupJobs), action
    return action


def errors(action: Action | Malformed) -> dict[str, str]:
    assert isinstance(action, Malformed), action
    return {problem.path: problem.message for problem in action.errors}


def test_a_call_of_a_tool_is_told_that_no_tools_are_offered() -> None:
    fault = errors(read_universal('{"tool_calls": [{"name": "ls", "arguments": "{}"}]}', KINDS))
    assert fault.keys() == {""}
    assert 'no tools are offered; found a call of "ls"' in fault[""]
    assert '"response_type"' in fault[""]


EXPECTED = {
    "planning": "create_followup_jobs", "answer": "mission_complete", "verification": "mission_complete",
    "clarity": "create_followup_jobs", "research": "analysis_result", "custom": "analysis_result", "error": "error",
}  # fmt: skip


@table("example", SEED["examples"], ids=lambda e: f"{e['response_type']}: {e['message'][:20]}")
def test_every_example_of_the_reference_is_translated(example: Body) -> None:
    action = read_universal(json.dumps(example), KINDS)
    assert not isinstance(action, Malformed), action.errors
    assert action.action == EXPECTED[str(example["response_type"])]


@pytest.mark.parametrize("example", SEED["refused"])
def test_what_the_reference_refuses_is_malformed(example: Body) -> None:
    assert "response_type" in errors(read_universal(json.dumps(example), KINDS))


def _cases() -> list[dict[str, JsonValue]]:
    if not CASES.exists():
        return []
    lines = CASES.read_text(encoding="utf-8").splitlines()
    return [case for case in map(json.loads, lines) if case["dialect"] == "universal"]


@pytest.mark.skipif(not CASES.exists(), reason="the collected replies are not beside this checkout")
@table("case", _cases(), ids=lambda case: str(case["id"]))
def test_every_collected_reply_is_read_as_it_is_labelled(case: dict[str, JsonValue]) -> None:
    reply = read_universal(str(case["text"]), KINDS)
    assert isinstance(reply, Malformed) is not case["valid"], reply


@table("status", STATUSES)
@table("kind", PAIRS)
def test_a_response_and_a_status_that_do_not_go_together_are_malformed(kind: str, status: str) -> None:
    action = respond(kind, status, planning_data=STEPS)
    assert isinstance(action, Malformed) is (status not in PAIRS[kind])
    if isinstance(action, Malformed):
        assert action.errors[0].path == "status"
        assert f'found "{status}"' in action.errors[0].message


@table("kind", PAIRS)
def test_the_status_error_is_the_error_whatever_the_response(kind: str) -> None:
    details: Body = {
        "error_code": "NO_PRD",
        "error_message": "there is no PRD",
        "suggested_action": "write one",
    }
    action = respond(kind, "error", "planning is not possible", error_details=details)
    assert isinstance(action, ErrorAction)
    assert action.error == "there is no PRD"
    assert (action.error_code, action.recovery_suggestion) == ("NO_PRD", "write one")
    assert action.commentary == "planning is not possible"


def test_an_error_without_details_says_its_message() -> None:
    action = respond("error", "error", "it broke")
    assert isinstance(action, ErrorAction)
    assert (action.error, action.commentary) == ("it broke", None)


def test_every_question_is_asked_in_one_held_job() -> None:
    asked: Body = {
        "follow_up_questions": ["Which file?", "Which colour?", "Since when?", " ", "Why?", "Who?"]
    }
    action = jobs(respond("clarity", "needs_clarification", "Too vague.", clarity_data=asked))
    (job,) = action.new_jobs
    assert (job.kind, job.auto_dispatch) == ("ask_user", False)
    assert job.params == {
        "question": "Too vague.\n1. Which file?\n2. Which colour?\n3. Since when?\n4. Why?\n5. Who?"
    }
    assert action.warnings == ()
    assert action.manner is Manner.CLARIFICATION


def test_more_questions_than_a_person_is_asked_at_once_are_refused() -> None:
    def ask(count: int) -> Action | Malformed:
        asked: Body = {"follow_up_questions": [f"What is {number}?" for number in range(count)]}
        return respond("clarity", "needs_clarification", clarity_data=asked)

    assert jobs(ask(20)).manner is Manner.CLARIFICATION
    assert errors(ask(21)) == {
        "clarity_data.follow_up_questions": "a person is asked at most 20 questions at once; found 21"
    }


SCORES: Body = {"completeness_score": 20, "clarity_score": 40, "accuracy_score": 45}


@table(
    ("scores", "rated"),
    [
        ({**SCORES, "total_score": 35}, "Rated 35 of 100 (completeness 20, clarity 40, accuracy 45)"),
        ({"total_score": 50}, "Rated 50 of 100"),
        ({"total_score": 84}, "Rated 84 of 100"),
        ({"total_score": 0}, "Rated 0 of 100"),
        ({"clarity_score": 84, "accuracy_score": 85}, "Rated 84 of 100 (clarity 84, accuracy 85)"),
    ],
)
def test_what_is_rated_below_85_is_asked_about_whatever_the_status(scores: Body, rated: str) -> None:
    clarity: Body = {**scores, "follow_up_questions": ["Which file?"]}
    for status in ("success", "needs_clarification"):
        action = jobs(respond("clarity", status, "Too vague.", clarity_data=clarity))
        (job,) = action.new_jobs
        assert job.params["question"] == f"Too vague.\n{rated}; clear from 85 on.\n1. Which file?"
        assert action.manner is Manner.CLARIFICATION


@table(
    "scores",
    [{}, {"total_score": 85}, {**SCORES, "total_score": 90}, {"clarity_score": 85}, {"accuracy_score": 100}],
)
def test_what_is_rated_85_or_more_or_not_at_all_is_an_analysis(scores: Body) -> None:
    questions: list[JsonValue] = [f"Question {number}?" for number in range(30)]
    action = respond("clarity", "success", clarity_data={**scores, "follow_up_questions": questions})
    assert isinstance(action, AnalysisResult)
    assert action.recommendations == questions


@table("needed", [True, False, None])
def test_an_answer_says_whether_it_needs_a_follow_up(needed: bool | None) -> None:
    data: Body = {"confidence": "low", "sources": ["a.py"], "follow_up_needed": needed}
    action = respond("answer", "success", "So it is.", answer_data=data)
    assert isinstance(action, MissionComplete)
    more = " A follow-up is needed." if needed else ""
    assert (action.summary, action.commentary) == ("So it is.", f"Confidence: low. Sources: a.py.{more}")
    assert action.manner is (Manner.FOLLOW_UP if needed else Manner.PLAIN)


SECTIONS: dict[str, JsonValue] = {
    "planning_data": STEPS,
    "verification_data": {"checks": [{"criterion": "c", "passed": True}]},
    "clarity_data": {"follow_up_questions": ["Why?"]},
    "research_data": {"sources": ["a"]},
    "answer_data": {"follow_up_needed": False},
    "custom_fields": {"a": 1},
    "error_details": {"error_code": "E"},
}


@table(
    ("kind", "status", "own"),
    [
        ("planning", "success", "planning_data"),
        ("verification", "FAIL", "verification_data"),
        ("clarity", "success", "clarity_data"),
        ("research", "success", "research_data"),
        ("answer", "success", "answer_data"),
        ("custom", "success", "custom_fields"),
        ("custom", "needs_clarification", "clarity_data"),
        ("research", "error", "error_details"),
        ("error", "error", "error_details"),
    ],
)
def test_a_section_that_does_not_belong_is_named_in_a_warning(kind: str, status: str, own: str) -> None:
    action = respond(kind, status, "m", **SECTIONS)
    assert not isinstance(action, Malformed), action.errors
    said = f"not read in a response of the type {kind} with the status {status}, ignored"
    assert action.warnings == tuple(f"{section}: {said}" for section in SECTIONS if section != own)


@table("empty", [None, {}, {"steps": []}, {"summary": "", "steps": None, "dependencies": []}])
def test_a_section_that_says_nothing_is_no_matter(empty: Body | None) -> None:
    action = respond("answer", "success", planning_data=empty)
    assert isinstance(action, MissionComplete)
    assert action.warnings == ()


def test_unknown_keys_of_a_section_are_named_with_their_place() -> None:
    step: Body = {"step_number": 1, "action": "Look", "details": None, "prority": "high"}
    action = respond(
        "planning", "success", planning_data={"steps": [step], "dependancies": ["a"], "tags": []}
    )
    assert not isinstance(action, Malformed), action.errors
    assert action.warnings == (
        "planning_data.dependancies: unknown key, ignored; did you mean 'dependencies'?",
        "planning_data.tags: unknown key, ignored",
        "planning_data.steps[0].prority: unknown key, ignored",
    )


def test_a_question_may_be_the_message_alone() -> None:
    (job,) = jobs(respond("planning", "needs_clarification", "Which database?")).new_jobs
    assert job.params == {"question": "Which database?"}


def test_a_plan_is_a_step_after_another_in_the_order_of_their_numbers() -> None:
    steps: list[JsonValue] = [
        {"step_number": 2, "action": "Write it down", "details": "in NOTES.md"},
        {"step_number": 1, "action": "Look around", "estimated_minutes": 5},
    ]
    data: Body = {"summary": "Understand it.", "steps": steps, "dependencies": ["a checkout"]}
    action = jobs(respond("planning", "success", "Two steps", planning_data=data))
    assert action.manner is Manner.STEPS
    assert action.commentary == "Two steps"
    assert [job.kind for job in action.new_jobs] == ["agent_plan", "agent_plan"]
    assert [job.name for job in action.new_jobs] == ["Look around", "Write it down"]
    assert [job.params["scope"] for job in action.new_jobs] == ["step", "step"]
    assert [job.params["user_prompt"] for job in action.new_jobs] == [
        "Step 1 of 2: Look around",
        "Step 2 of 2: Write it down\nin NOTES.md",
    ]
    context = (
        "Understand it.\nThe plan depends on: a checkout.\nThe whole plan:\n"
        "1. Look around (about 5 minutes)\n2. Write it down"
    )
    assert {job.params["context"] for job in action.new_jobs} == {context}


def test_a_plan_may_have_more_steps_than_a_reply_may_have_jobs() -> None:
    steps: list[JsonValue] = [{"step_number": number, "action": f"Step {number}"} for number in range(1, 31)]
    assert len(jobs(respond("planning", "success", planning_data={"steps": steps})).new_jobs) == 30


def test_an_empty_list_of_steps_asks_for_nothing_more() -> None:
    action = jobs(respond("planning", "success", "Nothing to do.", planning_data={"steps": []}))
    assert (action.new_jobs, action.commentary) == ((), "Nothing to do.")


@table(
    "data",
    [None, {}, {"summary": "s"}, {"steps": None}, {"steps": [{"step_number": 1, "action": "  "}]}],
)
def test_a_plan_that_does_not_state_its_steps_is_malformed(data: Body | None) -> None:
    assert next(iter(errors(respond("planning", "success", planning_data=data)))).startswith(
        "planning_data.steps"
    )


def checks(*passed: bool) -> Body:
    return {
        "checks": [
            {"criterion": f"c{index}", "passed": each, "note": "n"} for index, each in enumerate(passed)
        ]
    }


def test_a_pass_with_checks_that_all_passed_completes_the_mission() -> None:
    action = respond("verification", "PASS", "All good", verification_data=checks(True, True))
    assert isinstance(action, MissionComplete)
    assert (action.summary, action.commentary) == ("All good", "Checked: c0: n, c1: n.")


@table("status", ["PASS", "FAIL", "PARTIAL"])
def test_a_check_that_failed_is_planned_for_whatever_the_verdict_says(status: str) -> None:
    data: Body = {**checks(True, False), "suggestions": ["look at c1"]}
    action = jobs(respond("verification", status, "Almost", verification_data=data))
    (job,) = action.new_jobs
    assert action.manner is Manner.VERIFICATION
    assert job.kind == "agent_plan"
    prompt = "These checks did not pass; make them pass, then verify again:\n- c1 (n)\nSuggested: look at c1"
    assert job.params == {"user_prompt": prompt, "context": "Almost"}


@table(
    ("status", "data", "fact"),
    [
        ("PASS", None, "no check was stated"),
        ("PASS", {"checks": []}, "no check was stated"),
        ("FAIL", checks(True), "the verdict was FAIL though each check passed"),
    ],
)
def test_a_verdict_that_its_checks_do_not_bear_out_is_asked_for_again(
    status: str, data: Body | None, fact: str
) -> None:
    (job,) = jobs(respond("verification", status, verification_data=data)).new_jobs
    assert fact in str(job.params["user_prompt"])


def test_an_answer_completes_the_mission_and_says_how_sure_it_is() -> None:
    data: Body = {"confidence": "high", "sources": ["a.ts", "b.ts"], "follow_up_needed": True}
    action = respond("answer", "success", "It uses JWT.", answer_data=data)
    assert isinstance(action, MissionComplete)
    assert action.summary == "It uses JWT."
    assert action.commentary == "Confidence: high. Sources: a.ts, b.ts. A follow-up is needed."


def test_research_is_an_analysis_with_its_findings() -> None:
    finding: Body = {"topic": "t", "description": "d", "relevance": "low"}
    action = respond("research", "success", "One", research_data={"findings": [finding], "sources": ["a"]})
    assert isinstance(action, AnalysisResult)
    assert (action.summary, action.issues, action.commentary) == ("One", [finding], "Sources: a.")


def test_a_reply_that_is_clear_enough_is_an_analysis_with_its_scores() -> None:
    action = respond("clarity", "success", "Clear", clarity_data={"total_score": 90})
    assert isinstance(action, AnalysisResult)
    assert (action.summary, action.commentary) == ("Clear", "Rated 90 of 100; clear from 85 on.")


def test_custom_fields_may_hold_an_action_of_lcp() -> None:
    lcp: Body = {"ok": True, "action": "write_file", "rel_path": "a.md", "content": "x"}
    assert isinstance(respond("custom", "success", custom_fields={"lcp": lcp}), WriteFile)
    stop: Body = {"ok": False, "action": "error", "error": "no"}
    assert isinstance(respond("custom", "success", custom_fields={"lcp": stop}), ErrorAction)


@pytest.mark.parametrize(
    ("own", "told"), [(None, "To see more."), ("As the goal says.", "As the goal says.")]
)
def test_the_message_of_a_response_speaks_for_an_action_that_says_nothing(own: str | None, told: str) -> None:
    lcp: Body = {"ok": True, "action": "write_file", "rel_path": "a.md", "content": "x", "commentary": own}
    action = respond("custom", "success", "To see more.", custom_fields={"lcp": lcp})
    assert isinstance(action, WriteFile)
    assert action.commentary == told


@table(
    ("lcp", "path"),
    [
        ({"ok": True, "action": "mission_done"}, "custom_fields.lcp.action"),
        ({"ok": True, "action": None}, "custom_fields.lcp.action"),
        ({"ok": True, "action": "write_file", "rel_path": "a.md"}, "custom_fields.lcp.content"),
        (
            {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "read_file"}]},
            "custom_fields.lcp.new_jobs[0].params",
        ),
    ],
)
def test_custom_fields_that_name_an_action_and_are_none_are_malformed(lcp: JsonValue, path: str) -> None:
    found = errors(respond("custom", "success", "Scanned", custom_fields={"lcp": lcp}))
    assert any(place.startswith(path) for place in found), found


@table("lcp", [{"ok": True, "summary": "m"}, "write_file", {}, None])
def test_custom_fields_that_hold_no_action_are_an_analysis(lcp: JsonValue) -> None:
    action = respond("custom", "success", "Scanned", custom_fields={"lcp": lcp, "found": 3})
    assert isinstance(action, AnalysisResult)
    assert (action.summary, action.issues) == ("Scanned", [{"lcp": lcp, "found": 3}])
    assert any(warning.startswith("custom_fields.lcp") for warning in action.warnings) is isinstance(
        lcp, dict
    )


@table(
    ("body", "path"),
    [
        ({"response_type": "answer", "status": "success"}, "message"),
        ({"response_type": "answer", "status": "success", "message": None}, "message"),
        ({"response_type": "answer", "status": "success", "message": "m", "extra": 1}, "extra"),
        (
            {"response_type": "clarity", "status": "success", "message": "m", "clarity_data": {"total_score": 101}},
            "clarity_data.total_score",
        ),
        (
            {"response_type": "answer", "status": "success", "message": "m", "answer_data": {"confidence": "very"}},
            "answer_data.confidence",
        ),
        (
            {**PLAN, "planning_data": {"steps": [{"step_number": 1}]}},
            "planning_data.steps[0].action",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_schema_is_malformed_with_its_place(body: Body, path: str) -> None:
    assert path in errors(read_universal(json.dumps(body), KINDS))
    assert not Draft202012Validator(SEED["schema"]).is_valid(body)


def test_a_null_in_an_optional_place_reads_as_absent() -> None:
    action = respond(
        "answer", "success", answer_data={"confidence": None}, planning_data=None, custom_fields=None
    )
    assert isinstance(action, MissionComplete)


def test_the_frame_around_a_reply_is_that_of_lcp() -> None:
    text = '<think>so</think>```json\n{"response_type": "answer", "status": "success", "message": "m"}\n```'
    action = read_universal(text, KINDS)
    assert not isinstance(action, Malformed)
    assert action.recovered == ("<think> section", "Markdown fence")


def _without_words(schema: JsonValue) -> JsonValue:
    if isinstance(schema, dict):
        return {
            key: _without_words(part)
            for key, part in schema.items()
            if key not in ("description", "title", "$schema")
        }
    return schema


def test_the_plain_schema_is_that_of_the_reference() -> None:
    assert _without_words(universal_schema()) == _without_words(SEED["schema"])
    for example in SEED["examples"]:
        Draft202012Validator(universal_schema()).validate(example)


def test_the_strict_schema_takes_no_pair_that_is_never_read() -> None:
    validator = Draft202012Validator(strict_universal_schema({"type": "null"}))
    answer: Body = {
        "response_type": "answer",
        "status": "success",
        "message": "m",
        "answer_data": {"confidence": None, "sources": None, "follow_up_needed": None},
    }
    assert validator.is_valid(answer)
    assert not validator.is_valid({**answer, "status": "PASS"})
    assert not validator.is_valid({**answer, "response_type": "planning"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = tuple(SEED["schema"]["properties"])


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON)),
    st.sampled_from([*PAIRS]),
    st.sampled_from(STATUSES),
)
def test_no_object_raises_and_what_the_schema_refuses_is_refused(body: Body, kind: str, status: str) -> None:
    whole: Body = {**body, "response_type": kind, "status": status, "message": "m"}
    action = read_universal(json.dumps(whole), KINDS)
    present = {key: value for key, value in whole.items() if value is not None}
    if not Draft202012Validator(SEED["schema"]).is_valid(present):
        assert isinstance(action, Malformed) or "null" in json.dumps(present)


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert isinstance(read_universal(text, KINDS), Malformed)


@pytest.mark.parametrize("section", ["planning_data", "custom_fields"])
def test_a_million_entries_are_read_or_refused(section: str) -> None:
    text = json.dumps(
        {"response_type": "custom", "status": "success", "message": "m", section: {"steps": [{}] * 10**6}}
    )
    action = read_universal(text, KINDS)
    assert isinstance(action, Malformed) is (section == "planning_data")
