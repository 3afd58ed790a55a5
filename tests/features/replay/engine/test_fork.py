"""A new mission begins at a turn of another one, with all that was known by then."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.engine.replies import DONE, FREE, ask, read, write

from lcp_engine.api.engine import Engine
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.errors import LcpError
from lcp_engine.features.check.store.examination import faults_in
from lcp_engine.features.programs.servers.external_worker import kinds_in
from lcp_engine.workers.base import Caps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.engine.conftest import Lab, Object


@pytest.fixture(autouse=True)
def _whole(lab: Lab) -> Iterator[None]:
    """After every test the database is checked as `lcp db check` does."""
    yield
    assert lab.engine.instance.database.read(faults_in) == []


def test_a_fork_asks_the_turn_again_and_knows_what_was_before(lab: Lab) -> None:
    lab.run(ask("a", "b"), ask("c"), DONE)
    forked = lab.engine.fork(1, turn=2)
    assert (forked.id, forked.changed) == (2, ())
    assert lab.mission(2).status == "running"
    assert lab.mission(2).turns == 1
    lab.work()
    assert lab.mission(2).outcome == "mission_complete"
    again = lab.questions[3]
    assert (again.number, again.results, again.history) == (
        2,
        lab.questions[1].results,
        lab.questions[1].history,
    )
    assert [job.params for job in lab.jobs(2)] == [{"of": "a"}, {"of": "b"}, {"of": "c"}]
    assert [len(job.attempts) for job in lab.jobs(2)] == [1, 1, 1]
    assert lab.jobs(2)[0].json["started_at"] == lab.jobs(1)[0].json["started_at"]


def test_a_fork_keeps_what_a_program_wrote_to_stderr(lab: Lab, tmp_path: Path) -> None:
    program = tmp_path / "talk.sh"
    program.write_text("#!/bin/sh\necho 'a word' >&2\necho '{\"result\": {}}'\n")
    program.chmod(0o755)
    (worker,) = kinds_in({"talk": {"command": "./talk.sh", "has_effects": False}}, tmp_path)
    with Engine(lab.url, workers=[worker]) as engine:
        script: Object = {"type": "script", "replies": [ask({"kind": "talk"}), DONE]}
        engine.launch({"goal": "Talk.", "planner": script}, root=lab.root)
        engine.work(until_idle=True)
        engine.fork(1, turn=2)
        engine.work(until_idle=True)
        attempts = [attempt for job in engine.jobs(kinds=["talk"]) for attempt in job.attempts]
        said = [attempt["stderr"] for attempt in attempts if isinstance(attempt, dict)]
        assert said == ["a word", "a word"]
        assert [str(one) for one in engine.replay(1).differences] == []


def test_an_edited_reply_takes_another_way(lab: Lab) -> None:
    lab.run(ask("a"), ask("b"), DONE)
    lab.engine.fork(1, turn=2, reply=json.dumps(ask("other")))
    assert lab.mission(2).turns == 2
    lab.work()
    assert [job.params for job in lab.jobs(2)] == [{"of": "a"}, {"of": "other"}]
    assert lab.mission(2).outcome == "mission_complete"
    assert [question.number for question in lab.questions] == [1, 2, 3, 3]


def test_a_reply_that_is_no_lcp_leads_to_a_corrective_turn(lab: Lab) -> None:
    lab.run(ask("a"), ask("b"), DONE)
    lab.engine.fork(1, turn=2, reply="")
    lab.work()
    assert lab.questions[3].correction.reply == ""
    assert lab.mission(2).outcome == "mission_complete"


def test_another_planner_answers(lab: Lab) -> None:
    lab.run(ask("a"), ask("b"), DONE)
    script = PlannerSpec.model_validate({"type": "script", "replies": ["", DONE]})
    lab.engine.fork(1, turn=2, planner=script)
    lab.work()
    assert lab.mission(2).json["planner"] == "script"
    assert [job.params for job in lab.jobs(2)] == [{"of": "a"}]
    assert len(lab.questions) == 3


def test_a_fork_of_the_first_turn_is_the_mission_anew(lab: Lab) -> None:
    lab.run("prose", ask("a"), DONE)
    lab.engine.fork(1, turn=1)
    lab.work()
    assert lab.states(2) == ["succeeded"]
    assert lab.mission(2).turns == lab.mission(1).turns


def test_what_was_asked_for_before_counts_as_repeated(lab: Lab) -> None:
    lab.run(ask("a"), ask("b"), DONE)
    lab.engine.fork(1, turn=2, reply=json.dumps(ask("a")))
    lab.work()
    assert lab.questions[3].notices == ["nothing new was requested 1 times in a row; at 3 the plan fails"]


def test_held_jobs_stay_held_and_approvals_are_not_taken_over(lab: Lab) -> None:
    lab.run(ask("a", write("a.txt", "x"), write("b.txt", "y")), ask("b"), DONE)
    first, second = (job.id for job in lab.engine.jobs(mission_id=1, states=["held"]))
    lab.engine.approve(first, params={"rel_path": "other.txt", "content": "z"})
    lab.engine.reject(second, "no")
    lab.work()
    lab.engine.fork(1, turn=2, reply=json.dumps(DONE))
    assert lab.states(2) == ["succeeded", "held", "held"]
    assert [job.params.get("rel_path") for job in lab.jobs(2)] == [None, "a.txt", "b.txt"]
    lab.work()
    lab.engine.approve(lab.jobs(2)[1].id)
    lab.work()
    assert (lab.root / "a.txt").read_text() == "x"
    assert lab.states(2) == ["succeeded", "succeeded", "held"]


def test_a_job_that_was_approved_and_had_not_run_waits_again(lab: Lab) -> None:
    lab.launch(ask("a", {"kind": "change"}), DONE, DONE, DONE, each_result=True)
    lab.meanwhile.append(lambda: lab.engine.approve(lab.jobs()[1].id))
    lab.work()
    assert lab.states(1) == ["succeeded", "succeeded"]
    lab.engine.fork(1, turn=2)
    assert lab.states(2) == ["succeeded", "held"]
    assert "approved" not in lab.events(2)


def test_a_job_that_failed_after_an_approval_stays_bound_to_what_was_approved(lab: Lab) -> None:
    lab.run(ask(write("a.md", "text")), DONE)
    lab.engine.approve(lab.jobs()[0].id)
    with Engine(lab.url, caps=Caps(write_bytes=1)) as narrow:
        narrow.work(until_idle=True)
    fork = lab.engine.fork(1, turn=2).id
    (failed,) = lab.jobs(fork)
    assert failed.state == "failed"
    (lab.root / "a.md").write_text("somebody was faster")
    lab.engine.retry(failed.id)
    lab.work()
    assert (lab.root / "a.md").read_text() == "somebody was faster"
    assert [(job.state, job.reason) for job in lab.jobs(fork)] == [("held", "drift")]


def test_a_fork_can_be_replayed_and_forked(lab: Lab) -> None:
    lab.run(ask("a", write("log", "1", mode="append")), ask("a"), ask("a"), ask("a"), DONE, policy=[FREE])
    (lab.root / "log").write_text("by a person")
    again = ask(write("log", "2", mode="append"))
    for turn, reply in ((2, None), (3, json.dumps(again)), (3, "no LCP")):
        forked = lab.engine.fork(1, turn=turn, reply=reply)
        lab.work()
        assert lab.mission(forked.id).status != "running"
        assert [str(one) for one in lab.engine.replay(forked.id).differences] == []
    first = lab.engine.fork(1, turn=2)
    lab.work()
    third = lab.engine.fork(first.id, turn=2)
    lab.work()
    outcomes = [lab.mission(each).outcome for each in (1, first.id, third.id)]
    assert outcomes == ["mission_complete"] * 3


def test_sub_plans_go_on_where_they_stood(lab: Lab) -> None:
    step: Object = {"kind": "agent_plan", "params": {"user_prompt": "Look closer.", "scope": "step"}}
    lab.run(ask("a", step), ask("b"), ask("c"), DONE, DONE)
    assert lab.mission(1).outcome == "mission_complete"
    for turn in range(1, lab.mission(1).turns + 1):
        forked = lab.engine.fork(1, turn=turn)
        lab.work()
        assert lab.mission(forked.id).outcome == "mission_complete"
        assert lab.states(forked.id) == lab.states(1)
        assert lab.engine.replay(forked.id).is_same


@pytest.mark.parametrize("threads", [1, 4])
def test_every_turn_of_a_mission_with_many_can_be_forked(lab: Lab, threads: int) -> None:
    lab.launch(*(ask(f"{turn}", f"{turn}+") for turn in range(4)), *[DONE] * 40, each_result=True)
    lab.work(threads=threads)
    for turn in range(1, lab.mission(1).turns + 1):
        forked = lab.engine.fork(1, turn=turn)
        lab.work()
        assert lab.mission(forked.id).outcome == "mission_complete"


def test_failures_and_retries_are_what_they_were_then(lab: Lab) -> None:
    lab.failures["flaky"] = 1
    lab.run(ask({"kind": "fail"}, {"kind": "flaky"}), ask("b"), DONE)
    lab.engine.retry(lab.jobs(1)[0].id)
    lab.work()
    lab.engine.fork(1, turn=2)
    assert lab.states(2) == ["failed", "succeeded"]
    assert lab.dig(lab.jobs(2)[0].json["error"], "error_code") == "PATH_NOT_FOUND"
    assert [len(job.attempts) for job in lab.jobs(2)] == [1, 2]
    lab.work()
    assert lab.mission(2).outcome == "mission_complete"


def test_limits_count_what_was_used_so_far(lab: Lab) -> None:
    lab.run(ask("a"), ask("b"), ask("c"), DONE, limits={"max_turns": 3}, planner={"tokens": 10})
    lab.engine.fork(1, turn=3, reply=json.dumps(ask("d")))
    lab.work()
    assert lab.questions[-1].last_turn == "max_turns"
    assert lab.mission(2).json["tokens"] == {"input": 30, "output": 30}


def test_the_history_says_where_a_fork_comes_from(lab: Lab) -> None:
    lab.run(ask("a"), DONE)
    lab.engine.fork(1, turn=2, by="ada")
    told = [event for event in lab.engine.events(2) if event["event"] == "forked"]
    used: Object = {"changed": [], "changed_seq": 0, "bytes_written": 0}
    assert [event["data"] for event in told] == [{"by": "ada", "mission": 1, "turn": 2, **used}]


def test_what_has_changed_since_is_listed(lab: Lab) -> None:
    for name in ("same.txt", "changed.txt", "gone.txt"):
        (lab.root / name).write_text(name)
    listing: Object = {"kind": "list_files", "params": {"patterns": ["*.txt"]}}
    reads = [read(name) for name in ("same.txt", "changed.txt", "gone.txt")]
    lab.run(
        ask(listing, *reads), ask(write("written.md", "1"), write("kept.md", "1"), "a"), DONE, policy=[FREE]
    )
    (lab.root / "changed.txt").write_text("by a person")
    (lab.root / "gone.txt").unlink()
    (lab.root / "new.txt").write_text("new")
    (lab.root / "written.md").write_text("by a person")
    early = lab.engine.fork(1, turn=2)
    assert [(drift.path, drift.now, drift.kind) for drift in early.changed] == [
        ("changed.txt", "changed", "read_file"),
        ("gone.txt", "gone", "read_file"),
        ("new.txt", "new", "list_files"),
    ]
    late = lab.engine.fork(1, turn=3)
    assert [str(drift) for drift in late.changed][3:] == ["written.md is changed since job 7 (write_file)"]
    assert late.unknown == (lab.jobs(1)[6].id,)


def test_a_file_that_changed_may_be_read_again(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("then")
    lab.run(ask(read("a.txt")), ask("b"), DONE)
    (lab.root / "a.txt").write_text("now")
    lab.engine.fork(1, turn=2, reply=json.dumps(ask(read("a.txt"))))
    lab.work()
    assert lab.questions[3].notices == []


def test_a_running_mission_can_be_forked(lab: Lab) -> None:
    mission_id = lab.launch(ask("a"), ask("b"), DONE)
    forks: list[int] = []

    def fork() -> None:
        if not forks:
            forks.append(lab.engine.fork(mission_id, turn=1, reply=json.dumps(DONE)).id)

    lab.meanwhile.append(fork)
    lab.work()
    assert [lab.mission(each).outcome for each in (mission_id, *forks)] == ["mission_complete"] * 2


# -- what cannot be forked


def test_turns_that_are_not_there_are_refused(lab: Lab) -> None:
    lab.run(ask("a"), DONE)
    for turn in (0, 3, -1):
        with pytest.raises(LcpError, match=f"mission 1 has no turn {turn}; its turns are 1 to 2") as raised:
            lab.engine.fork(1, turn=turn)
        assert raised.value.code == "NOT_FOUND"
    with pytest.raises(LcpError, match="mission 7 is not in the database"):
        lab.engine.fork(7, turn=1)


def test_a_mission_without_a_planner_is_refused(lab: Lab) -> None:
    job_id = lab.engine.enqueue("do", {})
    with pytest.raises(LcpError, match="has no planner; only a turn can be forked") as raised:
        lab.engine.fork(lab.engine.job(job_id).mission_id, turn=1)
    assert raised.value.code == "WRONG_STATE"


def test_a_planner_that_is_not_there_and_a_root_that_is_gone_are_refused(lab: Lab) -> None:
    lab.run(DONE)
    with pytest.raises(LcpError, match="no planner is named 'nobody'"):
        lab.engine.fork(1, turn=1, planner=PlannerSpec(type="nobody"))
    shutil.rmtree(lab.root)
    with pytest.raises(LcpError) as raised:
        lab.engine.fork(1, turn=1)
    assert raised.value.code == "PATH_NOT_FOUND"
    assert len(lab.engine.missions()) == 1
    lab.root.mkdir()
