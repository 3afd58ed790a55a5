"""What a person answers and says: questions, options, words to the planner (R13, R14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.engine.answering import MOST_CHARACTERS, pick
from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
COLOURS = ["red", "reddish brown", "Blue"]


def ask(*jobs: Object) -> Object:
    new_jobs: list[JsonValue] = list(jobs)
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def question(text: str = "Which colour?", **params: JsonValue) -> Object:
    return {"kind": "ask_user", "params": {"question": text, **params}}


def refused(code: str, decide: object) -> str:
    """Calling `decide` raises an error with that code; what it says."""
    assert callable(decide)
    with pytest.raises(LcpError) as raised:
        decide()
    assert raised.value.code == code
    return str(raised.value)


def test_a_question_waits_and_its_answer_lets_the_mission_go_on(lab: Lab) -> None:
    assert lab.run(ask(question()), DONE).status == "waiting"
    (held,) = lab.jobs()
    assert (held.state, held.reason) == ("held", "it is a question to a person")
    assert lab.engine.answer(held.id, " green \n", by="ada")
    assert lab.mission().status == "running"
    answered = lab.engine.job(held.id)
    assert answered.result == {
        "ok": True,
        "action": "ask_user_result",
        "answer": "green",
        "option": None,
        "by": "ada",
    }
    assert (answered.state, answered.attempt, answered.attempts) == ("succeeded", 0, [])
    lab.work()
    assert lab.mission().status == "completed"
    (seen,) = lab.questions[1].results
    assert (seen.kind, seen.state, seen.result) == ("ask_user", "succeeded", answered.result)
    decided = next(event["data"] for event in lab.engine.events(1) if event["event"] == "decided")
    assert decided == {"by": "ada", "decision": "answer", "option": None}


def test_a_question_that_policy_lets_run_waits_all_the_same(lab: Lab) -> None:
    rule: Object = {"kinds": ["*"], "do": "auto"}
    assert lab.run(ask({**question(), "auto_dispatch": True}), DONE, policy=[rule]).status == "waiting"


def test_a_question_that_policy_denies_is_rejected(lab: Lab) -> None:
    rule: Object = {"kinds": ["ask_user"], "do": "deny"}
    assert lab.run(ask(question()), DONE, policy=[rule]).status == "completed"
    assert lab.states() == ["rejected"]


def test_an_answered_question_does_not_wait_for_the_others(lab: Lab) -> None:
    lab.run(ask(question("One?"), question("Two?")), DONE)
    lab.engine.answer(lab.jobs()[1].id, "2")
    lab.work()
    assert [seen.params["question"] for seen in lab.questions[1].results] == ["Two?"]
    assert [seen.params["question"] for seen in lab.questions[1].waiting] == ["One?"]


def test_the_same_answer_twice_is_harmless_and_another_is_a_conflict(lab: Lab) -> None:
    lab.run(ask(question(options=[*COLOURS]), question("Why?")), DONE)
    colour, why = (job.id for job in lab.jobs())
    assert lab.engine.answer(colour, "3", by="ada")
    assert not lab.engine.answer(colour, "blue", by="bob")
    assert "ada has answered it otherwise" in refused("WRONG_STATE", lambda: lab.engine.answer(colour, "red"))
    assert lab.engine.reject(why, "no reason")
    assert "it is rejected" in refused("WRONG_STATE", lambda: lab.engine.answer(why, "because"))


def test_what_is_no_answer_is_refused_and_changes_nothing(lab: Lab) -> None:
    lab.run(ask(question(), {"kind": "change", "params": {}}), DONE)
    asked, change = (job.id for job in lab.jobs())
    assert "blank" in refused("INVALID_ARGUMENT", lambda: lab.engine.answer(asked, " \n"))
    refused("INVALID_ARGUMENT", lambda: lab.engine.answer(asked, "x" * (MOST_CHARACTERS + 1)))
    assert "a held change" in refused("INVALID_ARGUMENT", lambda: lab.engine.answer(change, "yes"))
    refused("NOT_FOUND", lambda: lab.engine.answer(99, "yes"))
    refused("NOT_FOUND", lambda: lab.engine.answer(-(2**70), "yes"))
    assert f"lcp answer {asked} TEXT" in refused("INVALID_ARGUMENT", lambda: lab.engine.approve(asked))
    assert lab.states() == ["held", "held"]


@pytest.mark.parametrize(
    ("said", "option"),
    [("1", 1), ("3", 3), ("BLUE", 3), ("b", 3), ("red", 1), ("redd", 2), ("re", None), ("0", None), ("4", None),
     ("green", None), ("9" * 5000, None), ("²", None)],
)  # fmt: skip
def test_an_option_is_meant_by_number_or_by_a_beginning_of_its_own(said: str, option: int | None) -> None:
    assert pick(COLOURS, said) == option


def test_an_option_that_is_a_number_is_meant_by_itself_first() -> None:
    assert pick(["3", "2", "1"], "1") == 3


def test_words_of_a_persons_own_are_an_answer_to_a_question_with_options(lab: Lab) -> None:
    lab.run(ask(question(options=[*COLOURS])), DONE)
    assert lab.engine.answer(lab.jobs()[0].id, "none of them")
    result = lab.jobs()[0].result
    assert result is not None
    assert (result["answer"], result["option"]) == ("none of them", None)


def test_a_question_can_be_answered_after_the_end_and_leads_to_no_turn(lab: Lab) -> None:
    mission = lab.run(ask(question(), {"kind": "do", "params": {}}), DONE)
    assert mission.status == "completed"
    assert lab.engine.answer(lab.jobs()[0].id, "late")
    lab.work()
    assert (lab.mission().status, len(lab.questions)) == ("completed", 2)


def test_a_program_asks_a_person_without_a_planner(lab: Lab) -> None:
    job_id = lab.engine.enqueue("ask_user", {"question": "Ready?"})
    lab.work()
    assert lab.engine.job(job_id).state == "held"
    assert lab.engine.answer(job_id, "yes", by="ada")
    assert lab.engine.job(job_id).state == "succeeded"


def test_planners_invent_no_answers(lab: Lab) -> None:
    invented: Object = {"ok": True, "action": "ask_user_result", "answer": "yes", "by": "ada"}
    lab.run(invented, DONE)
    assert "a planner invents no results" in lab.questions[1].correction.errors[0]["message"]
    assert not lab.jobs()


@pytest.mark.parametrize("params", [{}, {"question": ""}, {"question": "a", "options": [""]},
                                    {"question": "a", "options": [str(n) for n in range(21)]},
                                    {"question": "a", "choices": ["b"]}])  # fmt: skip
def test_a_question_that_is_none_is_corrected(lab: Lab, params: Object) -> None:
    lab.run(ask({"kind": "ask_user", "params": params}), DONE)
    assert len(lab.questions[1].correction.errors) == 1
