"""A person is asked at most once for the same thing; what they said no to ends in words, not in a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.engine.replies import DONE, FREE, ask, write
from tests.engine.test_unfulfilled import told

from lcp_engine.core.reasons import ReasonCode
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.engine.conftest import Lab, Object

B = write("b", "x")
CHANGE: Object = {"kind": "change", "params": {"of": "x"}}
QUESTION: Object = {"kind": "ask_user", "params": {"question": "Shall I?"}}
UNKNOWN: Object = {"kind": "unknown", "params": {}}
SYSTEM: Object = {"kind": "system", "params": {}}
EXISTS: list[JsonValue] = [{"file_exists": "b"}]


def codes(lab: Lab, job_id: int) -> list[object]:
    """The codes of the reasons that the events of a job state."""
    data = [event["data"] for event in lab.engine.events(1) if event["job_id"] == job_id]
    return [one["code"] for one in data if isinstance(one, dict) and "code" in one]


@pytest.mark.parametrize("job", [B, CHANGE, QUESTION, UNKNOWN, SYSTEM])
def test_what_a_person_rejected_is_not_held_again(lab: Lab, job: Object) -> None:
    lab.run(ask(job), ask(job), DONE)
    (held,) = lab.jobs()
    lab.engine.reject(held.id, "not today")
    lab.work()
    first, second = lab.jobs()
    assert [first.state, second.state, lab.mission().status] == ["rejected", "rejected", "completed"]
    assert codes(lab, second.id) == [ReasonCode.REJECTED_BEFORE]
    assert second.reason == f"it equals job {first.id}, which a person rejected: not today"
    assert second.error is not None
    assert second.error["error_code"] == ErrorCode.NOT_ALLOWED
    assert lab.questions[-1].results[-1].reason == second.reason


@pytest.mark.parametrize(
    "params",
    [
        {"rel_path": "./b", "content": "x"},
        {"path": "b", "new_content": "x"},
        {"rel_path": "b", "root": ".", "content": "x"},
        {"rel_path": "c/../b", "content": "x", "mode": "overwrite"},
    ],
)
def test_it_is_not_held_again_under_another_spelling(lab: Lab, params: Object) -> None:
    lab.run(ask(write("b", "x")), ask({"kind": "write_file", "params": params}), DONE)
    lab.engine.reject(lab.jobs()[0].id, "no")
    lab.work()
    assert lab.states() == ["rejected", "rejected"]


@pytest.mark.parametrize("wording", [{}, {"options": ["yes", "no"]}])
def test_what_a_person_answered_is_not_asked_again(lab: Lab, wording: Object) -> None:
    question: Object = {"kind": "ask_user", "params": {"question": "Shall I?", **wording}}
    lab.run(ask(question), ask(question), DONE)
    (held,) = lab.jobs()
    lab.engine.answer(held.id, "yes", by="dana")
    lab.work()
    first, second = lab.jobs()
    assert [first.state, second.state, lab.mission().status] == ["succeeded", "rejected", "completed"]
    assert codes(lab, second.id) == [ReasonCode.ANSWERED_BEFORE]
    assert second.reason == f"it equals job {first.id}, which dana answered: yes"
    assert lab.questions[-1].results[-1].reason == second.reason
    assert lab.engine.replay(1).is_same


def test_a_question_is_asked_again_after_a_change(lab: Lab) -> None:
    lab.run(ask(QUESTION), ask(write("b", "x")), ask(QUESTION), DONE, policy=[FREE])
    lab.engine.answer(lab.jobs()[0].id, "yes")
    lab.work()
    assert lab.states() == ["succeeded", "succeeded", "held"]


def test_repeating_it_counts_as_no_progress(lab: Lab) -> None:
    lab.run(ask(B), *[ask(B)] * 5)
    lab.engine.reject(lab.jobs()[0].id, "no")
    lab.work()
    assert (lab.mission().outcome, lab.states()) == ("no_progress", ["rejected"] * 3)
    assert told(lab) == ([0, 1, 2], 4)


def test_it_is_not_asked_for_again_beside_others_or_without_review(lab: Lab) -> None:
    lab.run(ask({**B, "auto_dispatch": False}), ask(B, "look"), ask(write("b", "y")), DONE, policy=[FREE])
    lab.engine.reject(lab.jobs()[0].id, "no")
    lab.work()
    assert lab.states() == ["rejected", "rejected", "succeeded", "succeeded"]
    assert told(lab) == ([], 0)


@pytest.mark.parametrize("claim", [DONE, {"ok": True, "action": "analysis_result", "summary": "seen"}])
def test_a_check_that_fails_because_of_a_no_asks_for_no_other_attempt(lab: Lab, claim: Object) -> None:
    lab.run(ask(B), claim, claim, claim, claim, accept=EXISTS)
    lab.engine.reject(lab.jobs()[0].id, "not today")
    lab.work()
    mission = lab.mission()
    assert (mission.status, mission.outcome, mission.turns) == ("completed", claim["action"], 2)
    assert told(lab) == ([0], 4)
    assert len(lab.jobs()) == 1
    assert lab.engine.replay(1).is_same


def test_a_check_that_fails_because_policy_denies_the_file_asks_for_no_other_attempt(lab: Lab) -> None:
    deny: Object = {"kinds": ["write_file", "rewrite_file"], "paths": ["b"], "do": "deny"}
    lab.run(ask(B), DONE, DONE, DONE, DONE, policy=[deny, FREE], accept=EXISTS)
    mission = lab.mission()
    assert (mission.status, mission.turns) == ("completed", 2)
    assert told(lab) == ([0], 4)


def test_a_check_on_a_file_that_another_kind_may_write_does(lab: Lab) -> None:
    deny: Object = {"kinds": ["write_file"], "paths": ["b"], "do": "deny"}
    other: Object = {"kinds": ["rewrite_file"], "paths": ["b"], "do": "auto"}
    lab.run(ask(B), DONE, DONE, DONE, DONE, policy=[other, deny, FREE], accept=EXISTS)
    assert lab.mission().status == "waiting"


@pytest.mark.parametrize(
    ("then", "accept"),
    [
        ([DONE, DONE, DONE, DONE], [*EXISTS, {"file_exists": "c"}]),
        ([ask(write("b", "y")), DONE], EXISTS),
    ],
)
def test_a_check_that_fails_for_another_reason_does(
    lab: Lab, then: list[JsonValue], accept: list[JsonValue]
) -> None:
    lab.run(ask(B), *then, accept=accept)
    lab.engine.reject(lab.jobs()[0].id, "no")
    lab.work()
    assert lab.mission().status == "waiting"


def test_a_person_who_changed_their_mind_retries_the_job(lab: Lab) -> None:
    lab.run(ask(B), DONE)
    job = lab.jobs()[0].id
    lab.engine.reject(job, "no")
    lab.work()
    assert told(lab) == ([0], 4)
    lab.engine.retry(job)
    assert (lab.states(), told(lab)) == (["held"], ([0], 3))
    lab.engine.approve(job)
    lab.work()
    assert (told(lab), (lab.root / "b").read_text()) == (([], 0), "x")
    assert lab.engine.job(job).error is None


def test_the_job_that_was_rejected_at_once_can_be_retried_too(lab: Lab) -> None:
    lab.run(ask(B), ask(B), DONE)
    lab.engine.reject(lab.jobs()[0].id, "no")
    lab.work()
    lab.engine.retry(lab.jobs()[1].id)
    lab.engine.approve(lab.jobs()[1].id)
    lab.work()
    assert told(lab) == ([], 0)


def test_a_job_that_policy_refused_cannot_be_retried(lab: Lab) -> None:
    lab.run(ask(B), DONE, policy=[{"kinds": ["*"], "do": "deny"}])
    with pytest.raises(LcpError, match="failed and skipped jobs, and those that a person rejected"):
        lab.engine.retry(lab.jobs()[0].id)


def test_after_a_resume_the_person_is_asked_again(lab: Lab) -> None:
    lab.run(ask(B), DONE, ask(B), DONE)
    lab.engine.reject(lab.jobs()[0].id, "no")
    lab.work()
    lab.engine.resume(1)
    lab.work()
    assert lab.states() == ["rejected", "held"]
    lab.engine.approve(lab.jobs()[1].id)
    lab.work()
    assert told(lab) == ([], 0)


def test_the_result_of_a_turn_repeats_the_beginning_of_a_long_text(lab: Lab) -> None:
    said = "x" * 100_000
    lab.run({"ok": True, "action": "mission_complete", "summary": said})
    (turn,) = lab.engine.jobs(mission_id=1)
    assert turn.result is not None
    assert str(turn.result["summary"]).endswith("x<84,000 more characters in the reply>")
    assert lab.mission().summary == said
