"""What a person answers and says: questions, options, words to the planner (R13, R14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.core.protocol.question_form import pick
from lcp_engine.engine.people.messages import MOST_CHARACTERS
from lcp_engine.engine.question import open_question
from lcp_engine.errors import LcpError
from lcp_engine.store.ledger import ledger_of

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


FORM: Object = {
    "type": "form", "id": "which", "title": "Which?", "optional": True, "submit_label": "Send",
    "fields": [{"id": "t", "type": "textarea", "label": "T", "placeholder": "…", "help_text": "In full."}],
}  # fmt: skip
AS_READ: Object = {
    "question": "Which?", "id": "which", "submit_label": "Send",
    "fields": [{"id": "t", "type": "textarea", "label": "T", "placeholder": "…", "help": "In full."}],
}  # fmt: skip


def test_the_form_of_another_protocol_is_stored_as_it_is_read(lab: Lab) -> None:
    assert lab.run(ask({"kind": "ask_user", "params": FORM}), DONE).status == "waiting"
    (held,) = lab.jobs()
    assert held.params == AS_READ
    lab.engine.answer(held.id, form={"t": "That one"}, by="ada")
    lab.work()
    remembered = [entry.content for entry in lab.engine.memory.entries(root=lab.root)]
    assert "Question: Which?\nAnswer of ada: T: That one" in remembered


def test_such_a_form_that_an_operator_enqueues_is_stored_alike(lab: Lab) -> None:
    lab.engine.enqueue("ask_user", FORM)
    (held,) = lab.jobs()
    assert held.params == AS_READ


@pytest.mark.parametrize("label", ["T", "$output.step-001.content"])
def test_a_step_that_asks_with_such_a_form_is_stored_alike(lab: Lab, label: str) -> None:
    (lab.root / "a.md").write_text("T")
    field: Object = {
        "id": "t",
        "type": "textarea",
        "label": label,
        "placeholder": "…",
        "help_text": "In full.",
    }
    steps: list[JsonValue] = [
        {"id": "step-001", "tool": "read_file", "parameters": {"path": "a.md"}},
        {"id": "step-002", "tool": "ask_user", "parameters": {**FORM, "fields": [field]},
         "dependencies": ["step-001"]},
    ]  # fmt: skip
    lab.engine.launch({"goal": "Do it.", "plan": {"steps": steps}}, root=lab.root)
    lab.work()
    assert lab.jobs()[-1].params == AS_READ


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
    assert "ada has given another answer" in refused("WRONG_STATE", lambda: lab.engine.answer(colour, "red"))
    assert lab.engine.reject(why, "no reason")
    assert "is rejected; only held jobs" in refused("WRONG_STATE", lambda: lab.engine.answer(why, "because"))


def test_what_is_no_answer_is_refused_and_changes_nothing(lab: Lab) -> None:
    lab.run(ask(question(), {"kind": "change", "params": {}}), DONE)
    asked, change = (job.id for job in lab.jobs())
    assert "blank" in refused("INVALID_ARGUMENT", lambda: lab.engine.answer(asked, " \n"))
    refused("INVALID_ARGUMENT", lambda: lab.engine.answer(asked, "x" * (MOST_CHARACTERS + 1)))
    assert "a held change" in refused("WRONG_STATE", lambda: lab.engine.answer(change, "yes"))
    refused("NOT_FOUND", lambda: lab.engine.answer(99, "yes"))
    refused("NOT_FOUND", lambda: lab.engine.answer(-(2**70), "yes"))
    assert f"lcp answer {asked} TEXT" in refused("WRONG_STATE", lambda: lab.engine.approve(asked))
    assert lab.states() == ["held", "held"]


@pytest.mark.parametrize(
    ("said", "option"),
    [("1", 1), ("3", 3), ("BLUE", 3), ("b", 3), ("red", 1), ("redd", 2), ("re", None), ("0", None), ("4", None),
     ("green", None), ("9" * 5000, None), ("²", None), ("3.", 3), ("3)", 3), ("#3", 3), (" #1) ", 1), ("4.", None)],
)  # fmt: skip
def test_an_option_is_meant_by_number_or_by_a_beginning_of_its_own(said: str, option: int | None) -> None:
    assert pick(COLOURS, said) == option


def test_an_option_that_is_a_number_is_meant_by_itself_first() -> None:
    assert pick(["3", "2", "1"], "1") == 3


@pytest.mark.parametrize("said", ["0", "4", "4.", "4)", "#4", " 99\n", "-1", "+7", "9" * 5000, "re", "RE"])
def test_what_looks_like_a_choice_and_is_none_is_refused_unless_it_is_meant(lab: Lab, said: str) -> None:
    lab.run(ask(question(options=[*COLOURS])), DONE)
    job_id = lab.jobs()[0].id
    problem = refused("INVALID_ARGUMENT", lambda: lab.engine.answer(job_id, said))
    assert "1) red, 2) reddish brown, 3) Blue" in problem
    assert lab.states() == ["held"]
    assert lab.engine.answer(job_id, said, words=True)
    result = lab.jobs()[0].result
    assert result is not None
    assert (result["answer"], result["option"]) == (said.strip(), None)


def test_own_words_select_an_option_by_its_whole_text_only(lab: Lab) -> None:
    lab.run(ask(question("One?", options=[*COLOURS]), question("Two?", options=[*COLOURS])), DONE)
    for job, said in zip(lab.jobs(), ("2", "BLUE"), strict=True):
        assert lab.engine.answer(job.id, said, words=True)
    results = [job.result for job in lab.jobs() if job.result]
    assert [(result["answer"], result["option"]) for result in results] == [("2", None), ("Blue", 3)]


def test_a_number_answers_a_question_without_options(lab: Lab) -> None:
    lab.run(ask(question("How many?")), DONE)
    assert lab.engine.answer(lab.jobs()[0].id, "42")


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
    assert "a planner does not invent results" in lab.questions[1].correction.errors[0]["message"]
    assert not lab.jobs()


@pytest.mark.parametrize("params", [{}, {"question": ""}, {"question": "a", "options": [""]},
                                    {"question": "a", "options": [str(n) for n in range(21)]},
                                    {"question": "a", "choices": ["b"]}])  # fmt: skip
def test_a_question_that_is_none_is_corrected(lab: Lab, params: Object) -> None:
    lab.run(ask({"kind": "ask_user", "params": params}), DONE)
    assert len(lab.questions[1].correction.errors) == 1


def said_to(lab: Lab) -> list[list[str]]:
    """What each question told the planner of people's words."""
    return [asked.said for asked in lab.questions]


def test_what_a_person_says_reaches_a_waiting_planner_at_once_and_decides_nothing(lab: Lab) -> None:
    lab.run(ask({"kind": "change", "params": {}}), ask({"kind": "do", "params": {}}), DONE)
    lab.engine.say(1, " Not yet. ", by="ada")
    assert lab.mission().status == "running"
    lab.work()
    assert lab.states() == ["held", "succeeded"]
    assert said_to(lab) == [[], ["Not yet."], []]
    assert lab.questions[2].said_before == ["Not yet."]
    assert [event["data"] for event in lab.engine.events(1, event="said")] == [
        {"by": "ada", "text": "Not yet.", "plan": 1}
    ]


def test_two_words_are_heard_in_one_turn(lab: Lab) -> None:
    lab.run(ask({"kind": "change", "params": {}}), DONE)
    lab.engine.say(1, "One.")
    lab.engine.say(1, "Two.")
    lab.work()
    assert said_to(lab) == [[], ["One.", "Two."]]


@pytest.mark.parametrize("each_result", [False, True])
def test_what_is_said_while_jobs_run_is_heard_once(lab: Lab, each_result: bool) -> None:
    spoken = ["Hurry up."]
    lab.meanwhile.append(lambda: lab.engine.say(1, spoken.pop()) if spoken else None)
    jobs: list[Object] = [{"kind": "do", "params": {"of": number}} for number in range(3)]
    more = [ask({"kind": "do", "params": {"of": number}}) for number in range(3, 6)]
    lab.run(ask(*jobs), *more, *[DONE] * 6, each_result=each_result)
    assert lab.mission().status == "completed"
    assert [words for heard in said_to(lab) for words in heard] == ["Hurry up."]


def ask_and_die(lab: Lab) -> None:
    """A runner asks the mission's question, and is gone before there is a reply."""
    turn = lab.claim_and_die()
    assert lab.engine.instance.database.write(lambda tx: open_question(ledger_of(tx), turn.copy()))


def test_what_is_said_while_the_planner_is_asked_comes_before_the_end(lab: Lab) -> None:
    mission_id = lab.launch(DONE, DONE)
    ask_and_die(lab)
    lab.engine.say(mission_id, "One more thing.")
    lab.work()
    assert said_to(lab) == [[], ["One more thing."]]
    assert lab.mission().status == "completed"


def test_what_is_said_is_repeated_in_a_correction_and_not_after(lab: Lab) -> None:
    lab.run(ask({"kind": "change", "params": {}}), "no JSON", ask({"kind": "do", "params": {}}), DONE)
    lab.engine.say(1, "Mind the gap.")
    lab.work()
    assert said_to(lab) == [[], ["Mind the gap."], ["Mind the gap."], []]


def test_what_is_said_of_a_job_goes_to_the_plan_that_asked_for_it(lab: Lab) -> None:
    step: Object = {"kind": "agent_plan", "params": {"user_prompt": "Part.", "scope": "step"}}
    lab.run(ask(step), ask({"kind": "change", "params": {}}), DONE, DONE)
    held = next(job for job in lab.jobs() if job.state == "held")
    lab.engine.say(1, "Smaller.", job_id=held.id)
    lab.work()
    assert [(asked.prompt, asked.said) for asked in lab.questions[1:]] == [
        ("Part.", []), ("Part.", ["Smaller."]), ("Find out.", []),
    ]  # fmt: skip


def test_the_missions_planner_hears_while_its_step_waits(lab: Lab) -> None:
    step: Object = {"kind": "agent_plan", "params": {"user_prompt": "Part.", "scope": "step"}}
    lab.run(ask(step), ask({"kind": "change", "params": {}}), DONE)
    lab.engine.say(1, "Forget it.")
    lab.work()
    assert (lab.questions[2].prompt, lab.questions[2].said) == ("Find out.", ["Forget it."])
    assert lab.mission().status == "completed"


def test_nobody_speaks_to_a_mission_that_has_ended_and_resuming_helps(lab: Lab) -> None:
    lab.run(ask({"kind": "do", "params": {}}), DONE, DONE)
    assert "`lcp resume 1`" in refused("WRONG_STATE", lambda: lab.engine.say(1, "Wait!"))
    lab.engine.resume(1)
    lab.engine.say(1, "Thank you.")
    lab.work()
    assert said_to(lab)[-1] == ["Thank you."]


def test_words_that_reach_no_planner_are_refused(lab: Lab) -> None:
    lab.run(ask({"kind": "change", "params": {}}), DONE)
    other = lab.engine.enqueue("do", {})
    queue = lab.engine.job(other).mission_id
    refused("INVALID_ARGUMENT", lambda: lab.engine.say(1, "\n"))
    refused("INVALID_ARGUMENT", lambda: lab.engine.say(1, "x" * (MOST_CHARACTERS + 1)))
    refused("INVALID_ARGUMENT", lambda: lab.engine.say(1, "about", job_id=other))
    refused("NOT_FOUND", lambda: lab.engine.say(1, "about", job_id=999))
    refused("NOT_FOUND", lambda: lab.engine.say(999, "hello"))
    refused("WRONG_STATE", lambda: lab.engine.say(queue, "hello"))
    assert lab.events().count("said") == 0
    lab.work()
