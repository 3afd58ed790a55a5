"""A mission with a result of its own: it is asked for, checked, and stored with what else was found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lcp_engine.errors import LcpError
from lcp_engine.store.missions import MOST_LISTED

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.engine.conftest import Lab, Object

PEOPLE: JsonValue = {
    "schema": {
        "type": "object",
        "required": ["people"],
        "properties": {"people": {"type": "array", "items": {"type": "string"}}},
    }
}
FOUND: JsonValue = {"people": ["Ada", "Bob"]}
DONE: Object = {"ok": True, "action": "mission_complete", "summary": "found two", "result": FOUND}
WRONG: Object = {**DONE, "result": {"people": ["Ada", 2]}}
YES: Object = {"ok": True, "action": "analysis_result", "summary": "they are"}
JOBS: Object = {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "do", "params": {}}]}


def test_the_result_is_stored_and_read_in_json_and_sql(lab: Lab) -> None:
    mission = lab.run(JOBS, DONE, result=PEOPLE)
    assert (mission.outcome, mission.result) == ("mission_complete", FOUND)
    assert mission.json["result"] == FOUND
    rows = lab.rows("SELECT result FROM mission_overview")
    assert [json.loads(str(row[0])) for row in rows] == [FOUND]


def test_what_earlier_turns_found_is_there_for_the_result(lab: Lab) -> None:
    """Results of every turn, of any kind and in any form, reach the turn that sums them up."""
    asks: list[JsonValue] = [
        {**JOBS, "new_jobs": [{"kind": "do", "params": {"found": name}}]} for name in ("Ada", "Bob")
    ]
    mission = lab.run(*asks, DONE, result=PEOPLE)
    assert [seen.params["found"] for seen in lab.questions[2].history] == ["Ada", "Bob"]
    assert mission.result == FOUND


def test_a_reply_whose_result_does_not_fit_is_corrected(lab: Lab) -> None:
    mission = lab.run(WRONG, {**DONE, "result": None}, DONE, result=PEOPLE)
    assert (mission.result, mission.turns) == (FOUND, 1)
    told = [[error["path"] for error in question.correction.errors] for question in lab.questions[1:]]
    assert told == [["result.people[1]"], ["result"]]


def test_too_many_that_do_not_fit_end_the_mission(lab: Lab) -> None:
    mission = lab.run(WRONG, WRONG, WRONG, result=PEOPLE)
    assert (mission.status, mission.outcome, mission.result) == ("failed", "invalid_reply", None)


def test_the_last_turn_needs_it_and_is_not_corrected(lab: Lab) -> None:
    limits: JsonValue = {"max_turns": 1}
    assert lab.run(JOBS, DONE, result=PEOPLE, limits=limits).result == FOUND
    failed = lab.run(JOBS, WRONG, result=PEOPLE, limits=limits)
    assert (failed.outcome, failed.result) == ("limit:max_turns", None)


def test_a_reply_without_jobs_would_end_the_mission_without_it(lab: Lab) -> None:
    mission = lab.run({**JOBS, "new_jobs": []}, DONE, result=PEOPLE)
    assert (mission.outcome, mission.result) == ("mission_complete", FOUND)


def test_who_verifies_carries_none_and_the_claim_counts(lab: Lab) -> None:
    mission = lab.run(DONE, YES, result=PEOPLE, accept=[{"verify": "Are they all there?"}])
    assert (mission.summary, mission.result) == ("found two", FOUND)


def test_what_a_person_accepts_is_the_result_that_was_claimed(lab: Lab) -> None:
    missing: JsonValue = [{"file_exists": "a.md"}]
    claims: list[Object] = [{**DONE, "result": {"people": [name]}} for name in ("Ada", "Bob", "Cy", "Di")]
    lab.run(*claims, result=PEOPLE, accept=missing)
    (held,) = [job for job in lab.jobs() if job.state == "held"]
    lab.engine.answer(held.id, "1")
    lab.work()
    mission = lab.engine.mission(1)
    assert (mission.outcome, mission.result) == ("mission_complete", {"people": ["Di"]})


def test_a_plan_within_the_mission_carries_none(lab: Lab) -> None:
    params: JsonValue = {"user_prompt": "Look.", "scope": "step"}
    step: Object = {**JOBS, "new_jobs": [{"kind": "agent_plan", "params": params}]}
    mission = lab.run(step, YES, DONE, result=PEOPLE)
    assert (mission.summary, mission.result, mission.turns) == ("found two", FOUND, 3)


def test_a_resumed_mission_has_no_result_until_it_is_complete_again(lab: Lab) -> None:
    lab.run(DONE, JOBS, {**DONE, "result": {"people": []}}, result=PEOPLE)
    lab.engine.resume(1)
    assert lab.engine.mission(1).result is None
    lab.work()
    assert lab.engine.mission(1).result == {"people": []}


def test_a_fork_and_a_replay_need_no_file(lab: Lab) -> None:
    lab.run(JOBS, DONE, result=PEOPLE)
    other: Object = {**DONE, "result": {"people": ["Eve"]}}
    forked = lab.engine.fork(1, turn=2, reply=json.dumps(other))
    lab.work()
    assert lab.engine.mission(forked.id).result == {"people": ["Eve"]}
    assert lab.engine.replay(1).is_same


def test_findings_are_stored_with_the_mission(lab: Lab) -> None:
    found: Object = {
        "ok": True, "action": "analysis_result", "summary": "two issues", "target_file": "a.md",
        "issues": ["one", {"line": 2}], "recommendations": ["rest"],
    }  # fmt: skip
    mission = lab.run(found)
    assert (mission.target_file, mission.issues, mission.recommendations) == (
        "a.md",
        ["one", {"line": 2}],
        ["rest"],
    )
    assert mission.result is None
    rows = lab.rows("SELECT target_file, issues, recommendations FROM mission_overview")
    assert [tuple(row) for row in rows] == [("a.md", '["one",{"line":2}]', '["rest"]')]


def test_a_long_list_of_findings_is_cut_and_says_so(lab: Lab) -> None:
    issues: JsonValue = ["x" * 1000] * 100
    mission = lab.run({"ok": True, "action": "analysis_result", "summary": "many", "issues": issues})
    assert mission.issues[-1] == f"<{100 - len(mission.issues) + 1} more in the reply>"
    assert len(json.dumps(mission.issues)) < MOST_LISTED


def test_a_failed_mission_has_found_nothing(lab: Lab) -> None:
    mission = lab.run({"ok": False, "action": "error", "error": "no"})
    assert (mission.result, mission.target_file, mission.issues) == (None, None, [])


def test_a_script_is_checked_before_it_runs(lab: Lab) -> None:
    spec: Object = {"goal": "Find.", "planner": {"type": "script", "replies": [WRONG]}, "result": PEOPLE}
    with pytest.raises(
        LcpError, match=r'reply 1 is not valid: result\.people\[1\]: 2 is not of type "string"'
    ):
        lab.engine.launch(spec, root=lab.root)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"schema": "people.json"}, "result.schema: should be the schema itself"),
        ({"schema": {"type": "strin"}}, "result.schema: should be a JSON Schema"),
        ({"schema": 3}, "result.schema: should be a mapping, not 3"),
        ({"shema": {}}, "result.shema: is not a known key; did you mean 'schema'?"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_at_the_launch(
    lab: Lab, result: JsonValue, said: str
) -> None:
    with pytest.raises(LcpError, match="result") as refused:
        lab.run(DONE, result=result)
    assert said in str(refused.value)
