"""With `on_limit: hold` a mission that reaches a limit asks a person for more; only a person decides, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine import Job
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}


def ask(*names: str) -> Object:
    jobs: list[JsonValue] = [{"kind": "do", "params": {"of": name}} for name in names]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}


def waiting(lab: Lab) -> Job:
    """The question about the limit, the only job that is held."""
    (job,) = lab.engine.jobs(states=["held"])
    return job


def hold(lab: Lab, *replies: JsonValue, **limits: JsonValue) -> Job:
    """A mission that waits at a limit."""
    lab.run(*replies, limits=limits or {"max_turns": 1}, on_limit="hold")
    return waiting(lab)


def test_a_limit_asks_a_person_what_to_do(lab: Lab) -> None:
    job = hold(lab, ask("a"), DONE)
    mission = lab.mission()
    assert (str(mission.status), job.kind, job.reason) == (
        "waiting",
        "ask_user",
        "the mission reached max_turns",
    )
    question = str(job.params["question"])
    assert "has reached max_turns: 1 of 1 turns are used." in question
    assert "So far: 1 turn, 1 job asked for, 0 failed, no file written." in question
    assert len(lab.questions) == 1
    assert not lab.engine.awaited_replies()


def test_a_limit_in_a_stage_names_what_was_written_there(lab: Lab) -> None:
    jobs: list[JsonValue] = [
        {"kind": "write_file", "params": {"rel_path": path, "content": "x"}} for path in "bc"
    ]
    asked: Object = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    lab.run(asked, DONE, limits={"max_turns": 1}, on_limit="hold", stage=True)
    assert "files written in its stage: b, c" in str(waiting(lab).params["question"])


def test_more_lets_it_go_on_and_it_asks_again_at_the_next_limit(lab: Lab) -> None:
    job = hold(lab, ask("a"), ask("b"), ask("c"), DONE)
    lab.engine.answer(job.id, form={"more": 2}, by="ann")
    lab.work()
    again = waiting(lab)
    assert "3 of 3 turns are used" in str(again.params["question"])
    lab.engine.answer(again.id, "1", by="ann")
    lab.work()
    mission = lab.mission()
    assert (str(mission.status), mission.turns, mission.limits["max_turns"]) == ("completed", 4, 4)
    assert [question.last_turn for question in lab.questions] == [None] * 4
    raised = lab.engine.events(1, event="limit_raised")
    assert [lab.dig(event, "data", "by") for event in raised] == ["ann", "ann"]
    assert lab.engine.replay(1).differences == ()


@pytest.mark.parametrize("refusal", ["0", "reject"])
def test_no_more_leaves_the_last_turn(lab: Lab, refusal: str) -> None:
    job = hold(lab, ask("a"), DONE)
    if refusal == "reject":
        lab.engine.reject(job.id, "enough", by="ann")
    else:
        lab.engine.answer(job.id, refusal, by="ann")
    lab.work()
    assert [question.last_turn for question in lab.questions] == [None, "max_turns"]
    assert lab.mission().status == "completed"
    assert lab.engine.events(1, event="limit_declined") != []
    assert lab.engine.replay(1).differences == ()


def test_a_mission_that_was_ended_at_a_limit_and_is_resumed_asks_again(lab: Lab) -> None:
    job = hold(lab, ask("a"), ask("b"), ask("c"), DONE)
    lab.engine.answer(job.id, "0")
    lab.work()
    assert lab.mission().outcome == "limit:max_turns"
    lab.engine.resume(1, limits={"max_turns": 3})
    lab.work()
    assert "3 of 3 turns" in str(waiting(lab).params["question"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("-1", "a number"), ("lots", "a number"), ("nan", "a number"), ("1e999", "a number"), ("1e13", "a number"),
        ("1.5", "should be a whole number"), ("9" * 301, "a number"), ("1 or so", "a number"),
    ],
)  # fmt: skip
def test_an_amount_that_is_none_is_refused_and_the_job_still_waits(lab: Lab, more: str, said: str) -> None:
    job = hold(lab, ask("a"), DONE)
    with pytest.raises(LcpError, match=said) as refused:
        lab.engine.answer(job.id, more)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert waiting(lab).id == job.id


def test_it_is_decided_once(lab: Lab) -> None:
    job = hold(lab, ask("a"), ask("b"), DONE)
    assert lab.engine.answer(job.id, "5", by="ann")
    assert not lab.engine.answer(job.id, form={"more": 5}, by="ann"), "the same again"
    for late in ("7", "0"):
        with pytest.raises(LcpError, match="ann has given another answer"):
            lab.engine.answer(job.id, late, by="bob")
    with pytest.raises(LcpError, match="only held jobs"):
        lab.engine.reject(job.id, "no", by="bob")
    assert lab.mission().limits["max_turns"] == 6


def test_it_expires_like_other_jobs(open_lab: OpenLab) -> None:
    now = [1_000_000_000_000_000]
    lab = open_lab(clock=lambda: now[0])
    lab.run(ask("a"), DONE, limits={"max_turns": 1}, on_limit="hold", hold_timeout=60)
    job = waiting(lab)
    now[0] += 61_000_000
    lab.work()
    assert lab.engine.job(job.id).state == "rejected"
    assert [question.last_turn for question in lab.questions] == [None, "max_turns"]


def test_seconds_and_tokens_ask_as_well(open_lab: OpenLab) -> None:
    now = [1_000_000_000_000_000]
    lab = open_lab(clock=lambda: now[0])

    def advance() -> None:
        now[0] += 40_000_000

    lab.meanwhile.append(advance)
    job = hold(lab, ask("a"), ask("b"), DONE, max_seconds=30)
    assert "max_seconds: 40.0 of 30 seconds are used" in str(job.params["question"])
    lab.engine.answer(job.id, "2.5")
    assert lab.mission().limits["max_seconds"] == 42.5
    lab.work()
    lab.engine.answer(waiting(lab).id, "100")
    lab.work()
    assert lab.mission().status == "completed"
    assert lab.engine.replay(1).differences == ()


def test_a_planner_cannot_grant_itself_more(lab: Lab) -> None:
    own: Object = {
        "kind": "ask_user",
        "params": {"question": "Mission 1 has reached max_turns. How many more?"},
    }
    both: Object = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [own, {"kind": "do", "params": {}}],
    }
    lab.run(both, DONE, limits={"max_turns": 1}, on_limit="hold")
    mine, asked = lab.engine.jobs(states=["held"])
    lab.engine.answer(mine.id, "1000")
    lab.work()
    assert lab.mission().limits["max_turns"] == 1
    assert lab.engine.job(asked.id).state == "held"


def test_cancelling_the_mission_settles_the_question(lab: Lab) -> None:
    job = hold(lab, ask("a"), DONE)
    lab.engine.cancel(1)
    assert lab.engine.job(job.id).state == "cancelled"
    assert lab.mission().status == "cancelled"


def test_a_runner_that_dies_with_the_turn_that_goes_on_asks_nobody_twice(lab: Lab) -> None:
    job = hold(lab, ask("a"), DONE)
    lab.engine.answer(job.id, "5")
    lab.claim_and_die()
    lab.work()
    assert lab.mission().status == "completed"
    assert len(lab.engine.events(1, event="asked_for_more")) == 1
    assert lab.mission().limits["max_turns"] == 6
