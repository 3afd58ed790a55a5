"""Equal jobs of one reply are one job, and nothing of that is lost (R11)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.engine.replies import DONE, FREE, ask, read, write
from tests.features.plans.engine.test_answered_plans import ANSWER, plan, run, step, steps_of
from tests.features.replay.engine.test_replay import same

from lcp_engine.engine.reply import FinishedTurn
from lcp_engine.engine.settle import settle_finished
from lcp_engine.runner.executor import Executor
from lcp_engine.store import queue
from lcp_engine.store.ledger import ledger_of

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.engine.conftest import Lab, Object


def merged(lab: Lab) -> list[JsonValue]:
    """What the events of jobs say that others were merged into."""
    return [event["data"] for event in lab.engine.events(1) if event["event"] == "merged"]


def test_five_reads_of_a_file_are_one_job_shown_once(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("once\n")
    lab.run(ask(*[read("a.txt")] * 5), DONE)
    assert lab.states() == ["succeeded"]
    assert [seen.params["rel_path"] for seen in lab.questions[1].results] == ["a.txt"]
    said = "new_jobs[1], new_jobs[2], new_jobs[3], new_jobs[4]: equal new_jobs[0], and they are one job"
    assert lab.questions[1].warnings == [said]
    assert [turn["warnings"] for turn in lab.engine.turns(1)] == [[said], None]
    assert merged(lab) == [
        {
            "reason": "one reply requests it 5 times, and it is one job",
            "code": "same_reply",
            "about": {"times": 5},
        }
    ]
    same(lab)


def test_however_they_spell_the_file(lab: Lab) -> None:
    (lab.root / "src").mkdir()
    (lab.root / "src" / "a.txt").write_text("once\n")
    spelled: list[Object] = [
        {"rel_path": "src/a.txt"},
        {"path": "./src//a.txt"},
        {"root": "src", "rel_path": "a.txt"},
    ]
    others: list[Object] = [{"rel_path": "src/a.txt", "offset": 1}, {"rel_path": "src/b.txt"}]
    jobs: list[Object] = [{"kind": "read_file", "params": params} for params in (*spelled, *others)]
    lab.run(ask(*jobs), DONE)
    assert lab.states() == ["succeeded", "succeeded", "failed"]
    same(lab)


def test_equal_effects_happen_once(lab: Lab) -> None:
    line = write("log.txt", "one line\n", mode="append")
    lab.run(ask(line, write("other.txt", "text"), line), DONE, policy=[FREE])
    assert lab.states() == ["succeeded", "succeeded"]
    assert (lab.root / "log.txt").read_text() == "one line\n"
    same(lab)


def test_one_that_is_to_be_reviewed_holds_the_job_for_all(lab: Lab) -> None:
    mission = lab.run(ask("a", {"kind": "do", "params": {"of": "a"}, "auto_dispatch": False}), DONE)
    (held,) = lab.jobs()
    assert (mission.status, held.state) == ("waiting", "held")
    lab.engine.approve(held.id)
    lab.work()
    assert lab.states() == ["succeeded"]
    same(lab)


def test_an_equal_job_takes_no_room_of_max_jobs(lab: Lab) -> None:
    lab.run(ask("a", "a", "a", "b"), ask("c"), DONE, limits={"max_jobs": 2})
    assert [(job.params["of"], job.state) for job in lab.jobs()] == [
        ("a", "succeeded"),
        ("b", "succeeded"),
        ("c", "rejected"),
    ]
    same(lab)


def test_the_job_that_stands_for_several_is_retried_as_one(lab: Lab) -> None:
    lab.failures["flaky"] = 5
    lab.run(ask({"kind": "flaky"}, {"kind": "flaky"}), DONE)
    (job,) = lab.jobs()
    assert job.state == "failed"
    lab.failures["flaky"] = 0
    lab.engine.retry(job.id)
    lab.work()
    assert lab.states() == ["succeeded"]


def test_steps_of_a_plan_are_jobs_of_their_own_although_they_are_equal(lab: Lab) -> None:
    """Each has its outcome, by its id: what runs between two equal steps may change what the second finds."""
    again: list[Object] = [step(number, parameters={"of": "the same"}) for number in (1, 2, 3)]
    run(lab, plan(*again), ANSWER)
    assert [(job.params["of"], job.state) for job in steps_of(lab)] == [("the same", "succeeded")] * 3
    assert merged(lab) == []
    same(lab)


def test_a_history_in_which_they_were_several_is_replayed_as_it_was(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("twice\n")
    lab.launch(ask(read("a.txt"), read("a.txt"), "b"), DONE)
    take_first_turn_as_before(lab)
    lab.work()
    assert lab.states() == ["succeeded"] * 3
    same(lab)
    fork = lab.engine.fork(1, turn=2)
    lab.work()
    assert lab.states(fork.id) == ["succeeded"] * 3


def take_first_turn_as_before(lab: Lab) -> None:
    """Take the next turn as the engine did when equal jobs of a reply were stored apart."""
    instance = lab.engine.instance
    runner = instance.database.write(
        lambda tx: queue.add_runner(tx, uid="older", host="there", boot="another", pid=1)
    )
    scope = queue.Scope(("agent_plan",), 1)
    jobs = instance.database.write(lambda tx: queue.claim(ledger_of(tx), scope, runner, 1))
    executor = Executor(instance, lambda tx, finished: pytest.fail("a turn is settled with its reply"))
    (finished,) = executor.execute(jobs, lab.engine.workers["agent_plan"])
    executor.close()
    assert isinstance(finished, FinishedTurn)
    apart = replace(finished, merges=False)
    instance.database.write(lambda tx: settle_finished(ledger_of(tx), [apart], random.Random(0)))
