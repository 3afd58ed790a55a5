"""A finished mission runs again from its history and comes out the same, or says what does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool
from tests.engine.replies import DONE, FREE, ask, read, write

from lcp_engine.api.engine import Engine
from lcp_engine.core.mission.yaml import read_document
from lcp_engine.errors import LcpError
from lcp_engine.shipped_missions import shipped_missions

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.engine.conftest import Lab, Object, OpenLab

    from lcp_engine.features.replay.replay import Replayed


def same(lab: Lab, mission_id: int = 1) -> Replayed:
    """The replay, which found no difference."""
    replayed = lab.engine.replay(mission_id)
    assert [str(one) for one in replayed.differences] == []
    assert replayed.stopped is None
    return replayed


def differs(lab: Lab, mission_id: int = 1) -> list[str]:
    return [str(one) for one in lab.engine.replay(mission_id).differences]


def change(lab: Lab, sql: str) -> None:
    """Tamper with the history, as no part of the engine does."""
    engine = create_engine(lab.url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL session_replication_role = replica"))  # no foreign keys
        assert connection.execute(text(sql)).rowcount == 1
    engine.dispose()


def test_reads_are_answered_from_the_history_and_the_root_is_not_needed(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("then")
    lab.run(ask({"kind": "list_files", "params": {}}), ask(read("a.txt"), read("b.txt")), DONE)
    assert lab.states() == ["succeeded", "succeeded", "failed"]
    shutil.rmtree(lab.root)
    replayed = same(lab)
    assert (replayed.jobs, replayed.questions) == (6, 3)
    lab.root.mkdir()


def test_no_worker_runs_again_and_no_planner_is_asked(lab: Lab) -> None:
    lab.run(ask("a", {"kind": "fail"}, {"kind": "change"}), DONE, policy=[FREE])
    lab.meanwhile.append(lambda: pytest.fail("a worker ran"))
    same(lab)
    assert len(lab.questions) == 2


def test_files_are_changed_again_beneath_a_scratch_root(lab: Lab, tmp_path: Path) -> None:
    (lab.root / "log.txt").write_bytes(b"\xef\xbb\xbfone\r\n")
    lab.run(
        ask(write("log.txt", "two\n", mode="append"), write("new/a.txt", "a")),
        ask(write("log.txt", "three\n", mode="append")),
        DONE,
        policy=[FREE],
    )
    after = (lab.root / "log.txt").read_bytes()
    (lab.root / "log.txt").write_text("people went on")
    kept = tmp_path / "kept"
    assert lab.engine.replay(1, keep=kept).is_same
    assert (kept / "root" / "log.txt").read_bytes() == after
    assert (kept / "root" / "new" / "a.txt").read_text() == "a"
    assert (lab.root / "log.txt").read_text() == "people went on"
    with Engine(f"sqlite:///{kept / 'replay.db'}") as scratch:
        assert scratch.mission(1).outcome == "mission_complete"
        assert scratch.mission(1).json["started_at"] == lab.mission().json["started_at"]


def test_what_people_did_to_a_file_between_two_changes_is_done_again(lab: Lab) -> None:
    lab.run(ask(write("a.txt", "1", mode="append")), ask(write("a.txt", "2", mode="append")), DONE)
    for expected in ("1", "edited2"):
        held = lab.engine.jobs(mission_id=1, states=["held"])[0].id
        lab.engine.diff(held)
        lab.engine.approve(held)
        lab.work()
        assert (lab.root / "a.txt").read_text() == expected
        (lab.root / "a.txt").write_text("edited")
    assert lab.mission().outcome == "mission_complete"
    same(lab)


def test_a_path_may_be_named_by_the_root_of_then(lab: Lab) -> None:
    path = str(lab.root / "deep" / "a.txt")
    absolute: Object = {"kind": "write_file", "params": {"path": path, "content": "x"}}
    beneath: Object = {
        "kind": "write_file",
        "params": {"root": str(lab.root), "rel_path": "b", "content": "x"},
    }
    lab.run(ask(absolute, beneath), DONE, policy=[FREE])
    assert lab.states() == ["succeeded", "succeeded"]
    same(lab)


def test_decisions_of_people_are_made_again_at_the_same_point(lab: Lab) -> None:
    lab.run(ask("a", write("a.txt", "x"), write("b.txt", "y"), {"kind": "change"}), ask("b"), DONE)
    first, second, third = (job.id for job in lab.engine.jobs(mission_id=1, states=["held"]))
    lab.engine.approve(first, params={"rel_path": "other.txt", "content": "z"}, by="ada")
    lab.engine.reject(second, "not this one", by="ada")
    lab.work()
    lab.engine.reject(third, "nor this", by="bob")
    lab.work()
    assert lab.mission().outcome == "mission_complete"
    same(lab)


def test_a_mission_that_waited_for_its_last_decision(lab: Lab) -> None:
    lab.run(ask(write("a.txt", "x")), ask("b"), DONE)
    assert lab.mission().status == "waiting"
    lab.engine.reject(lab.jobs()[0].id, "no")
    lab.work()
    assert lab.mission().status == "completed"
    same(lab)


@pytest.mark.parametrize("each_result", [False, True], ids=["per_batch", "per_result"])
def test_corrections_steps_and_stalling(lab: Lab, each_result: bool) -> None:
    step: Object = {"kind": "agent_plan", "params": {"user_prompt": "Look closer.", "scope": "step"}}
    plan: Object = {"kind": "agent_plan", "params": {"user_prompt": "Look further."}}
    mission = lab.run(
        "no LCP", ask("a", "b", step), ask("a"), "prose", ask("c"), DONE, ask(plan), ask("d"), DONE, DONE, DONE,
        DONE, each_result=each_result,
    )  # fmt: skip
    assert mission.status == "completed"
    same(lab)


@pytest.mark.parametrize("threads", [1, 4])
def test_whatever_the_order_in_which_jobs_were_settled(lab: Lab, threads: int) -> None:
    replies = [ask(*(f"{turn}-{job}" for job in range(5))) for turn in range(6)]
    lab.launch(*replies, DONE, *[DONE] * 40, each_result=True)
    lab.work(threads=threads)
    same(lab)


def test_failures_are_what_they_were(lab: Lab) -> None:
    lab.failures["flaky"] = 2
    mission = lab.run(ask({"kind": "flaky"}, {"kind": "fail"}), DONE, planner={"refuse": [2]})
    assert mission.outcome == "mission_complete"
    same(lab)


def test_a_mission_that_a_failure_ended(lab: Lab) -> None:
    mission = lab.run(ask({"kind": "fail"}, "a"), DONE, on_job_failure="fail")
    assert mission.outcome == "job_failed"
    same(lab)


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [(["one", "two", "three"], "invalid_reply"), ([ask("a")] * 4, "no_progress"), ([None], "job_failed")],
    ids=["invalid", "stalled", "no reply"],
)
def test_missions_that_failed(lab: Lab, replies: list[JsonValue], outcome: str) -> None:
    assert lab.run(*replies).outcome == outcome
    same(lab)


def test_rejections_and_caps(lab: Lab) -> None:
    lab.run(
        ask(read(".env"), "a", {"kind": "admin"}, {"kind": "no_such"}),
        ask("b", "c"),
        DONE,
        limits={"max_jobs": 3},
    )
    assert set(lab.states()) == {"rejected", "succeeded", "held"}
    same(lab)


def test_a_limit_of_time_is_what_it_was(open_lab: OpenLab) -> None:
    now = [1_000_000_000_000_000]
    lab = open_lab(clock=lambda: now[0])

    def advance() -> None:
        now[0] += 40_000_000

    lab.meanwhile.append(advance)
    lab.run(ask("a"), ask("b"), ask("c"), DONE, limits={"max_seconds": 100})
    assert [turn["last_turn"] for turn in lab.engine.turns(1)] == [None, None, None, "max_seconds"]
    same(lab)
    # The clock of a machine may be set back: what was decided stays decided.
    for shift in ("+ 200000000", "- 400000000"):
        change(
            lab, f"UPDATE events SET at = at {shift} WHERE mission_id = 1 AND event = 'started' AND seq = 3"
        )
        same(lab)


def test_a_mission_that_was_resumed_with_other_limits(lab: Lab) -> None:
    mission = lab.run(ask("a"), ask("b"), ask("c"), ask("d"), DONE, limits={"max_turns": 1, "max_jobs": 1})
    assert mission.outcome == "limit:max_turns"
    lab.engine.resume(mission.id, limits={"max_turns": 2, "max_jobs": 2}, by="ada")
    lab.work()
    assert lab.mission().outcome == "limit:max_turns"
    lab.engine.resume(mission.id, limits={"max_turns": 9}, by="ada")
    lab.work()
    assert lab.mission().outcome == "mission_complete"
    same(lab)


def test_a_cancelled_mission(lab: Lab) -> None:
    mission_id = lab.launch(ask("a", "b", {"kind": "change"}), DONE)
    lab.meanwhile.append(lambda: lab.engine.cancel(mission_id, by="ada"))
    lab.work()
    assert lab.mission().status == "cancelled"
    lab.meanwhile.clear()
    lab.engine.retry(lab.jobs()[1].id, by="ada")
    lab.work()
    assert lab.states() == ["cancelled", "succeeded", "cancelled"]
    same(lab)


def test_what_was_left_of_a_mission_and_cancelled(lab: Lab) -> None:
    mission = lab.run(ask("a", {"kind": "change"}), DONE)
    lab.engine.cancel(mission.id, by="ada")
    same(lab)


def test_answers_of_people_are_given_again(lab: Lab) -> None:
    question: Object = {"question": "Which one?", "options": ["the first", "the second"]}
    lab.run(ask({"kind": "ask_user", "params": question}), ask("a"), DONE)
    lab.engine.answer(lab.jobs()[0].id, "2", by="ada")
    lab.engine.enqueue("ask_user", {"question": "And now?"}, mission_id=1)
    lab.work()
    lab.engine.answer(lab.jobs()[1].id, "go on", by="ada")
    lab.work()
    assert lab.mission().outcome == "mission_complete"
    same(lab)


def test_a_person_who_was_the_planner_is_not_asked_again(lab: Lab) -> None:
    mission = lab.engine.launch({"goal": "Find out.", "planner": "human"}, root=lab.root)
    for reply in ("no LCP", json.dumps(ask("a")), json.dumps(DONE)):
        lab.work()
        (turn,) = lab.engine.jobs(mission_id=mission.id, states=["held"])
        lab.engine.answer(turn.id, reply)
    lab.work()
    assert lab.mission(mission.id).outcome == "mission_complete"
    same(lab, mission.id)


def test_the_planner_replay_gives_stored_replies_to_a_new_mission(lab: Lab) -> None:
    lab.run("prose", ask("a"), DONE, planner={"tokens": 7})
    turns: list[JsonValue] = [*lab.engine.turns(1)]
    again = lab.engine.launch({"goal": "g", "planner": {"type": "replay", "turns": turns}}, root=lab.root)
    lab.work()
    assert lab.mission(again.id).outcome == "mission_complete"
    assert lab.states(again.id) == lab.states(1)
    assert lab.mission(again.id).json["tokens"] == lab.mission(1).json["tokens"]
    short = lab.engine.launch({"goal": "g", "planner": {"type": "replay", "turns": turns[:1]}}, root=lab.root)
    lab.work()
    assert lab.mission(short.id).error["error_code"] == "SCRIPT_EXHAUSTED"


def test_what_people_said_is_said_again(lab: Lab) -> None:
    lab.run(ask(write("a.txt", "x")), ask("a"), DONE)
    lab.engine.say(1, "look at b as well", by="ada")
    lab.work()
    assert lab.mission().outcome == "mission_complete"
    same(lab)
    forked = lab.engine.fork(1, turn=2)
    lab.work()
    assert "said" in lab.events(forked.id)
    same(lab, forked.id)


def test_changes_that_were_taken_back_do_not_matter(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("before")
    lab.run(ask(write("a.txt", "1", mode="append")), DONE, policy=[FREE])
    lab.engine.undo(mission_id=1)
    assert (lab.root / "a.txt").read_text() == "before"
    same(lab)


def test_jobs_that_nobody_asked_for(lab: Lab) -> None:
    mission_id = lab.launch(ask("a"), DONE)
    lab.engine.enqueue("do", {"of": "extra"}, mission_id=mission_id, priority=50)
    lab.work()
    same(lab)


def test_acceptance_checks_come_out_as_they_did(lab: Lab) -> None:
    (lab.root / "there.json").write_text("[1]")
    checks: list[JsonValue] = [{"file_exists": "a.md"}, {"file_parses": "there.json"}, {"file_exists": "no"}]
    lab.run(DONE, ask(write("a.md", "x")), DONE, DONE, DONE, accept=checks, policy=[FREE])
    lab.engine.answer(lab.engine.jobs(kinds=["ask_user"])[0].id, "give up")
    assert lab.mission().outcome == "no_progress"
    same(lab)
    passed = lab.run(DONE, ask(write("a.md", "x")), DONE, accept=checks[:2], policy=[FREE]).id
    (lab.root / "there.json").unlink()
    assert lab.mission(passed).outcome == "mission_complete"
    same(lab, passed)


def test_a_claim_that_the_planner_verified_comes_out_the_same(lab: Lab) -> None:
    lab.run(
        DONE, {"ok": False, "action": "error", "error": "no"}, DONE, DONE, accept=[{"verify": "Is it good?"}]
    )
    assert (lab.mission().outcome, lab.mission().turns) == ("mission_complete", 4)
    same(lab)


def test_the_shipped_survey_comes_out_the_same(lab: Lab) -> None:
    (lab.root / "README.md").write_text("# A project\n\nIt does things.\n")
    (lab.root / "src").mkdir()
    (lab.root / "src" / "main.py").write_text("# TODO: all of it\nprint(1)\n")
    stated = read_document(shipped_missions()["survey"].read_text(encoding="utf-8"))
    assert isinstance(stated, dict)
    mission = lab.engine.launch(stated, root=lab.root)
    while lab.mission(mission.id).status in ("running", "waiting"):
        lab.work(threads=2)
        for job in lab.engine.jobs(mission_id=mission.id, states=["held"]):
            lab.engine.approve(job.id)
    assert lab.mission(mission.id).status == "completed"
    same(lab, mission.id)


# -- differences


def test_a_reply_that_was_tampered_with_is_found(lab: Lab) -> None:
    lab.run(ask(read("a.txt")), DONE)
    change(lab, "UPDATE turns SET reply = replace(reply, 'a.txt', 'b.txt') WHERE number = 1")
    replayed = lab.engine.replay(1)
    found = [str(one) for one in replayed.differences]
    assert "job 2 read_file a.txt: params.rel_path b.txt, was a.txt" in found


def test_a_reply_that_ends_the_mission_too_early_is_found(lab: Lab) -> None:
    lab.run(ask("a"), DONE)
    change(lab, """UPDATE turns SET reply = '{"ok": true, "action": "mission_complete", "summary": ""}'"""
                " WHERE number = 1")  # fmt: skip
    replayed = lab.engine.replay(1)
    assert replayed.stopped == "it stops before event 8: job 2 (do) was requested; now it is not"
    assert [one.as_json() for one in replayed.differences if one.job == 2 and one.field == "state"] == [
        {"job": 2, "title": 'job 2 do {"of": "a"} (turn 1)', "field": "state", "was": "queued", "is": None}
    ]


@pytest.mark.parametrize(("number", "action"), [(1, "create_followup_jobs"), (2, "mission_complete")])
def test_a_reply_that_is_read_differently_is_a_difference_of_its_own(
    lab: Lab, number: int, action: str
) -> None:
    """Replies with words on both sides of the object were valid once."""
    lab.run(ask("a"), DONE)
    change(lab, f"UPDATE turns SET reply = 'For example ' || reply || ' What now?' WHERE number = {number}")
    first, *others = lab.engine.replay(1).differences
    assert str(first) == f"question {number}: read differently, as invalid_reply, was {action}"
    assert (first.field, first.was, first.now) == ("read differently", action, "invalid_reply")
    assert others, "what follows from it is listed, too"


def test_a_reply_that_was_invalid_then_and_is_valid_now_is_read_differently(lab: Lab) -> None:
    lab.run("no", ask("a"), DONE)
    change(
        lab,
        "UPDATE turns SET reply = (SELECT reply FROM turns AS later WHERE later.number = 2) WHERE number = 1",
    )
    assert differs(lab)[0] == "question 1: read differently, as create_followup_jobs, was invalid_reply"


def test_a_file_that_comes_out_differently_is_found(lab: Lab) -> None:
    lab.run(ask(write("a.txt", "x")), DONE, policy=[FREE])
    change(lab, "UPDATE jobs SET result = replace(result, '2d711642', '00000000') WHERE id = 2")
    (found,) = differs(lab)
    assert found.startswith("job 2 write_file a.txt: result.sha256_after 2d711642")


def test_what_an_older_version_did_not_keep_is_no_difference(lab: Lab) -> None:
    said: JsonValue = {"confidence": "high"}
    answer: JsonValue = {"response_type": "answer", "status": "success", "message": "m", "answer_data": said}
    assert lab.run(answer, planner={"dialect": "universal"}).status == "completed"
    ((turn, result),) = lab.rows("SELECT id, result FROM jobs WHERE result LIKE '%assessment%'")
    kept = {key: value for key, value in json.loads(str(result)).items() if key != "assessment"}
    change(lab, f"UPDATE jobs SET result = '{json.dumps(kept)}' WHERE id = {turn}")
    same(lab)


def test_a_rule_of_the_user_that_is_new_is_found(lab: Lab, open_lab: OpenLab) -> None:
    from lcp_engine.core.policy import Rule, Verdict

    lab.run(ask("a"), DONE)
    strict = open_lab(user_rules=[Rule(kinds=("do",), do=Verdict.HOLD)])
    found = differs(strict)
    assert found[0] == 'job 2 do {"of": "a"}: held, was queued'


def test_a_state_is_compared_with_its_error(lab: Lab) -> None:
    lab.run(ask(read("a.txt")), DONE)
    change(lab, "UPDATE jobs SET error = replace(error, 'PATH_NOT_FOUND', 'NOT_A_FILE') WHERE id = 2")
    assert differs(lab) == ["job 2 read_file a.txt: failed PATH_NOT_FOUND, was failed NOT_A_FILE"]


# -- what cannot be replayed


def test_a_mission_that_goes_on_is_refused(lab: Lab) -> None:
    mission_id = lab.launch(ask("a"), DONE)
    with pytest.raises(
        LcpError, match="mission 1 is running; only missions that have ended can be replayed"
    ) as raised:
        lab.engine.replay(mission_id)
    assert raised.value.code == "WRONG_STATE"
    with pytest.raises(LcpError, match="mission 9 is not in the database"):
        lab.engine.replay(9)


def test_a_mission_whose_contents_were_pruned_is_refused(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("before")
    lab.run(ask(write("a.txt", "after")), DONE, policy=[FREE])
    (sha,) = lab.rows("SELECT sha256 FROM blobs")[0]
    change(lab, f"DELETE FROM blobs WHERE sha256 = '{sha}'")
    with pytest.raises(LcpError, match=f"mission 1 cannot be replayed: the contents {sha}") as raised:
        lab.engine.replay(1)
    assert raised.value.code == "WRONG_STATE"


def test_a_mission_whose_replies_were_pruned_is_refused(lab: Lab) -> None:
    lab.run(ask("a"), DONE)
    change(lab, "UPDATE turns SET reply = NULL WHERE number = 2")
    with pytest.raises(LcpError, match="mission 1 cannot be replayed: the reply to question 2"):
        lab.engine.replay(1)


def test_a_directory_that_is_in_use_is_not_taken(lab: Lab, tmp_path: Path) -> None:
    lab.run(DONE)
    with pytest.raises(LcpError, match="is not empty"):
        lab.engine.replay(1, keep=tmp_path)


def test_nothing_is_left_in_the_way(lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    lab.run(ask(write("a.txt", "x")), DONE, policy=[FREE])
    same(lab)
    assert list(place.iterdir()) == []
