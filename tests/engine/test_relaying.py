"""A person as the planner: questions that are held until a reply is brought (R13, R21)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.core.json_values import list_in, object_in
from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab

    from lcp_engine.store.queries.records import Job

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}


def ask(*kinds: str) -> str:
    new_jobs: list[JsonValue] = [{"kind": kind, "params": {"of": n}} for n, kind in enumerate(kinds)]
    return json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs})


def start(lab: Lab, **spec: JsonValue) -> int:
    """A mission whose planner is a person, up to its first question."""
    whole: Object = {"goal": "Find out.", "planner": "human", **spec}
    mission_id = lab.engine.launch(whole, root=lab.root).id
    lab.work()
    return mission_id


def held_turn(lab: Lab) -> Job:
    (turn,) = lab.engine.jobs(states=["held"], kinds=["agent_plan"])
    return turn


def bring(lab: Lab, reply: Object | str) -> None:
    """Answer the turn that waits, and work on."""
    text = reply if isinstance(reply, str) else json.dumps(reply)
    assert lab.engine.answer(held_turn(lab).id, text, by="ada")
    lab.work()


def refused(code: str, decide: object) -> str:
    assert callable(decide)
    with pytest.raises(LcpError) as raised:
        decide()
    assert raised.value.code == code
    return str(raised.value)


def test_a_person_plans_a_mission_from_start_to_end(lab: Lab) -> None:
    start(lab)
    assert lab.mission().status == "waiting"
    (turn,) = lab.engine.turns(1)
    assert "# Goal\nFind out." in str(turn["prompt"])
    assert "list_files" in str(turn["prompt"])
    bring(lab, ask("do"))
    assert lab.states() == ["succeeded"]
    assert lab.mission().status == "waiting"
    bring(lab, DONE)
    assert (lab.mission().status, lab.mission().turns) == ("completed", 2)
    assert [turn["action"] for turn in lab.engine.turns(1)] == ["create_followup_jobs", "mission_complete"]
    assert all(turn["prompt"] for turn in lab.engine.turns(1))


def test_a_reply_that_is_not_lcp_leads_to_the_corrective_question(lab: Lab) -> None:
    start(lab)
    bring(lab, "I would list the files first.")
    first, second = lab.engine.turns(1)
    assert second["corrects"] == first["number"]
    assert "I would list the files first." in str(second["prompt"])
    bring(lab, DONE)
    assert lab.mission().status == "completed"


def test_a_held_question_survives_a_restart_of_everything(open_lab: OpenLab) -> None:
    start(open_lab())
    later = open_lab()
    later.work()
    assert later.mission().status == "waiting"
    bring(later, DONE)
    assert later.mission().status == "completed"


def test_a_reply_that_was_brought_counts_although_its_runner_dies(lab: Lab) -> None:
    start(lab)
    turn = held_turn(lab)
    lab.engine.answer(turn.id, json.dumps(DONE))
    assert lab.claim_and_die().id == turn.id
    lab.work()
    assert lab.mission().status == "completed"
    assert len(lab.engine.turns(1)) == 1


def test_the_same_reply_twice_is_harmless_and_another_is_a_conflict(lab: Lab) -> None:
    start(lab)
    turn = held_turn(lab)
    assert lab.engine.answer(turn.id, json.dumps(DONE))
    assert not lab.engine.answer(turn.id, json.dumps(DONE))
    assert "another reply" in refused("WRONG_STATE", lambda: lab.engine.answer(turn.id, ask("do")))
    lab.work()
    assert not lab.engine.answer(turn.id, json.dumps(DONE))
    refused("WRONG_STATE", lambda: lab.engine.answer(turn.id, ask("do")))
    assert lab.mission().status == "completed"


def test_a_turn_is_answered_and_not_approved(lab: Lab) -> None:
    start(lab)
    turn = held_turn(lab)
    assert f"lcp answer {turn.id}" in refused("WRONG_STATE", lambda: lab.engine.approve(turn.id))
    refused("INVALID_ARGUMENT", lambda: lab.engine.answer(turn.id, " \n"))
    assert lab.mission().status == "waiting"


def test_a_turn_that_is_rejected_ends_the_mission_like_one_without_a_reply(lab: Lab) -> None:
    start(lab)
    assert lab.engine.reject(held_turn(lab).id, "no time")
    mission = lab.mission()
    assert (mission.status, mission.outcome) == ("failed", "job_failed")
    assert "got no reply: no time" in str(mission.summary)
    lab.engine.resume(1)
    lab.work()
    bring(lab, DONE)
    assert lab.mission().status == "completed"


def test_a_held_turn_keeps_its_place_while_other_jobs_go_on(lab: Lab) -> None:
    start(lab)
    bring(lab, ask("change", "do"))
    change = next(job for job in lab.jobs() if job.kind == "change")
    assert held_turn(lab).state == "held"
    lab.engine.approve(change.id)
    lab.work()
    assert lab.engine.job(change.id).state == "succeeded"
    assert len(lab.engine.jobs(kinds=["agent_plan"])) == 2
    bring(lab, ask("system"))
    assert "change" in str(lab.engine.turns(1)[-1]["prompt"])
    bring(lab, DONE)
    assert lab.mission().status == "completed"


def test_a_person_plans_the_steps_as_well(lab: Lab) -> None:
    start(lab)
    step: Object = {"kind": "agent_plan", "params": {"user_prompt": "Part.", "scope": "step"}}
    bring(lab, {"ok": True, "action": "create_followup_jobs", "new_jobs": [step]})
    assert "Part." in str(lab.engine.turns(1)[-1]["prompt"])
    bring(lab, ask("do"))
    bring(lab, DONE)
    bring(lab, DONE)
    assert lab.mission().status == "completed"


def test_a_step_whose_question_is_rejected_is_a_result(lab: Lab) -> None:
    start(lab)
    step: Object = {"kind": "agent_plan", "params": {"user_prompt": "Part.", "scope": "step"}}
    bring(lab, {"ok": True, "action": "create_followup_jobs", "new_jobs": [step]})
    lab.engine.reject(held_turn(lab).id, "not that")
    lab.work()
    assert "not that" in str(lab.engine.turns(1)[-1]["prompt"])
    bring(lab, DONE)
    assert lab.mission().status == "completed"


def test_a_person_may_answer_in_the_universal_dialect(lab: Lab) -> None:
    start(lab, planner={"type": "human", "dialect": "universal"})
    assert "response_type" in str(lab.engine.turns(1)[0]["prompt"])
    bring(lab, {"response_type": "answer", "status": "success", "message": "Found out."})
    assert (lab.mission().status, lab.mission().summary) == ("completed", "Found out.")


def test_cancelling_ends_a_turn_that_waits(lab: Lab) -> None:
    start(lab)
    turn = held_turn(lab)
    lab.engine.cancel(1)
    refused("WRONG_STATE", lambda: lab.engine.answer(turn.id, json.dumps(DONE)))
    assert lab.engine.job(turn.id).state == "cancelled"


def test_what_its_prompt_leaves_out_is_told_before_and_after_the_reply(lab: Lab) -> None:
    (lab.root / "long.log").write_text("".join(f"line {number} of a long file\n" for number in range(2000)))
    start(lab, planner={"type": "human", "context_tokens": 2000})
    read: JsonValue = {"kind": "read_file", "params": {"rel_path": "long.log"}}
    bring(lab, json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": [read]}))
    (waits,) = lab.engine.turns(1, job_id=held_turn(lab).id)
    (part,) = list_in(waits["left_out"])
    assert object_in(part)["what"] == 'read_file "long.log"'
    bring(lab, DONE)
    assert [turn["left_out"] for turn in lab.engine.turns(1)] == [[], [part]]
    assert lab.engine.replay(1).differences == ()
