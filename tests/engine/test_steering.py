"""What people do to missions: launch, cancel, resume, retry, enqueue without a planner."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.engine import missions
from lcp_engine.errors import LcpError
from lcp_engine.features.upkeep.store.prune import prune
from lcp_engine.store.ledger import ledger_of

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab

    from lcp_engine.store.db.transaction import Connection
    from lcp_engine.workers.base import Workers

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}


def ask(*jobs: Object | str) -> Object:
    """A reply that asks for jobs; a name is a job of the kind `do` with that name."""
    new_jobs: list[JsonValue] = [
        {"kind": "do", "params": {"of": job}} if isinstance(job, str) else {"params": {}, **job}
        for job in jobs
    ]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def refused(code: str, decide: object) -> None:
    """Calling `decide` raises an error with that code."""
    assert callable(decide)
    with pytest.raises(LcpError) as raised:
        decide()
    assert raised.value.code == code


def test_launching_twice_with_one_key_launches_once(open_lab: OpenLab) -> None:
    labs = [open_lab() for _ in range(4)]
    spec: Object = {"goal": "g", "planner": "surveyor"}
    with ThreadPoolExecutor(4) as pool:
        for key in "abcdef":
            launched = pool.map(lambda lab, key=key: lab.engine.launch(spec, root=lab.root, key=key).id, labs)
            assert len(set(launched)) == 1
    assert len(labs[0].engine.missions()) == 6


def test_cancelling_stops_everything(lab: Lab) -> None:
    mission_id = lab.launch(ask("a", "b", {"kind": "change"}), DONE)
    lab.meanwhile.append(lambda: lab.engine.cancel(mission_id, by="ada"))
    lab.work()
    mission = lab.mission()
    assert (mission.status, mission.outcome, mission.summary) == (
        "cancelled",
        "cancelled",
        "cancelled by ada",
    )
    assert lab.states() == ["cancelled"] * 3
    running = lab.jobs()[0]
    assert (running.result, running.attempt) == (None, 1)
    assert [lab.dig(attempt, "outcome") for attempt in running.attempts] == ["cancelled"]
    assert not lab.engine.cancel(mission_id)
    assert len(lab.questions) == 1


def test_cancelling_what_is_left_of_a_mission_keeps_its_outcome(lab: Lab) -> None:
    mission = lab.run(ask("a", {"kind": "change"}), DONE)
    assert lab.engine.cancel(mission.id)
    assert lab.states() == ["succeeded", "cancelled"]
    after = lab.mission()
    assert (after.status, after.outcome, after.summary) == ("completed", "mission_complete", "all done")
    refused("WRONG_STATE", lambda: lab.engine.cancel(mission.id))


def test_only_a_mission_that_has_ended_is_resumed(lab: Lab) -> None:
    mission = lab.run(ask({"kind": "change"}), DONE)
    refused("WRONG_STATE", lambda: lab.engine.resume(mission.id))
    refused("NOT_FOUND", lambda: lab.engine.resume(99))
    lab.engine.cancel(mission.id)
    refused("INVALID_MISSION", lambda: lab.engine.resume(mission.id, limits={"max_job": 3}))
    lab.engine.resume(mission.id)
    lab.work()
    assert lab.mission().outcome == "mission_complete"
    assert [result.state for result in lab.questions[1].results] == ["cancelled"]


def test_a_retried_job_runs_again_and_its_result_leads_to_a_turn(lab: Lab) -> None:
    lab.failures["flaky"] = 3
    lab.run(ask({"kind": "flaky"}, {"kind": "change"}), ask({"kind": "change", "params": {"of": 2}}), DONE)
    flaky = lab.jobs()[0]
    assert (flaky.state, lab.mission().status) == ("failed", "waiting")
    again = lab.engine.retry(flaky.id)
    assert (again.state, again.error, lab.mission().status) == ("queued", None, "running")
    lab.work()
    assert (lab.jobs()[0].state, lab.jobs()[0].attempt) == ("succeeded", 4)
    assert [result.state for result in lab.questions[2].results] == ["succeeded"]
    refused("WRONG_STATE", lambda: lab.engine.retry(flaky.id))


def test_a_job_retried_after_the_end_leads_to_no_turn(lab: Lab) -> None:
    lab.failures["flaky"] = 3
    lab.run(ask({"kind": "flaky"}), DONE)
    lab.engine.retry(lab.jobs()[0].id)
    lab.work()
    assert lab.states() == ["succeeded"]
    assert len(lab.questions) == 2


def retry(lab: Lab, job_id: int, workers: Workers | None = None) -> None:
    known = lab.engine.workers if workers is None else workers
    lab.engine.instance.database.write(
        lambda tx: missions.retry(ledger_of(tx), job_id, by="ada", workers=known)
    )


def test_a_job_cancelled_while_it_was_held_is_held_again(lab: Lab) -> None:
    mission_id = lab.launch(ask("a", {"kind": "change", "auto_dispatch": True}), DONE)
    lab.work()
    held = lab.jobs()[1]
    lab.engine.cancel(mission_id)
    retry(lab, held.id)
    again = lab.engine.job(held.id)
    assert (again.state, again.reason) == ("held", held.reason)
    refused("WRONG_STATE", lambda: retry(lab, held.id))
    lab.engine.approve(held.id)
    lab.work()
    assert lab.engine.job(held.id).state == "succeeded"


def test_an_approved_job_that_is_cancelled_is_queued_by_a_retry(lab: Lab) -> None:
    mission_id = lab.launch(ask({"kind": "change"}), DONE)
    lab.work()
    held = lab.jobs()[0]
    lab.engine.approve(held.id)
    lab.engine.cancel(mission_id)
    retry(lab, held.id)
    assert lab.engine.job(held.id).state == "queued"
    lab.work()
    assert lab.engine.job(held.id).state == "succeeded"


def test_a_retry_needs_a_worker_and_params_that_fit(lab: Lab) -> None:
    mission_id = lab.launch(ask({"kind": "teleport"}, {"kind": "fail"}), DONE)
    lab.work()
    lab.engine.cancel(mission_id)
    unknown, failed = lab.jobs()
    refused("NO_WORKER", lambda: retry(lab, unknown.id))
    refused("NO_WORKER", lambda: retry(lab, failed.id, {}))
    refused("INVALID_PARAMS", lambda: retry(lab, failed.id, {"fail": lab.engine.workers["read_file"]}))
    assert lab.states() == ["cancelled", "failed"]


def test_a_turn_is_not_retried(lab: Lab) -> None:
    mission = lab.run("one", "two", "three")
    refused("WRONG_STATE", lambda: lab.engine.retry(1))
    assert mission.outcome == "invalid_reply"


def test_jobs_without_a_planner_share_one_mission(lab: Lab) -> None:
    first = lab.engine.enqueue("do", {"of": 1}, name="first")
    second = lab.engine.enqueue("do", {"of": 2}, priority=5)
    lab.work(max_claim=1)
    assert lab.states() == ["succeeded", "succeeded"]
    started = [event["job_id"] for event in lab.engine.events(1) if event["event"] == "started"]
    assert started == [second, first]
    assert lab.mission().status == "running"
    assert lab.engine.job(first).name == "first"


@pytest.mark.parametrize("prunes", [False, True])
def test_where_the_mission_of_such_jobs_was_cancelled_they_get_another(lab: Lab, prunes: bool) -> None:
    first = lab.engine.enqueue("do", {"of": 1})
    lab.engine.cancel(lab.engine.job(first).mission_id)
    if prunes:
        prune(lab.engine.instance.database, ended_before=2**60)
    second = lab.engine.enqueue("do", {"of": 2})
    lab.work()
    third = lab.engine.enqueue("do", {"of": 3})
    assert [lab.engine.job(job).mission_id for job in (second, third)] == [2, 2]
    assert lab.engine.job(second).state == "succeeded"


def test_a_job_put_into_a_mission_is_a_result_for_its_planner(lab: Lab) -> None:
    mission = lab.run(ask({"kind": "change"}), DONE)
    assert mission.status == "waiting"
    lab.engine.enqueue("do", {"of": "me"}, mission_id=mission.id)
    assert lab.mission().status == "running"
    lab.work()
    assert lab.questions[1].results[0].params == {"of": "me"}


def test_what_cannot_be_enqueued_is_refused(lab: Lab) -> None:
    refused("NO_WORKER", lambda: lab.engine.enqueue("teleport"))
    refused("INVALID_PARAMS", lambda: lab.engine.enqueue("read_file", {"patterns": 1}))
    refused("NOT_FOUND", lambda: lab.engine.enqueue("do", mission_id=7))
    refused("INVALID_ARGUMENT", lambda: lab.engine.enqueue("agent_plan", {"user_prompt": "?"}))
    mission_id = lab.launch(DONE)
    lab.engine.cancel(mission_id)
    refused("WRONG_STATE", lambda: lab.engine.enqueue("do", mission_id=mission_id))


@contextmanager
def connection_of_the_caller(url: str) -> Iterator[Connection]:
    if url.startswith("sqlite:///"):
        lite = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        yield lite
        lite.close()
    else:
        import psycopg

        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as post:
            yield post  # type: ignore[misc]  # psycopg types SQL strictly


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_job_in_the_callers_transaction_exists_when_the_caller_commits(lab: Lab, end: str) -> None:
    lab.engine.enqueue("do", {"of": "before"})
    with connection_of_the_caller(lab.url) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TEMPORARY TABLE orders (id INTEGER)")
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO orders VALUES (1)")
        lab.engine.enqueue("do", {"of": "order"}, connection=connection)
        lab.engine.enqueue("do", {"of": "order too"}, connection=connection)
        assert len(lab.jobs()) == 1
        cursor.execute(end)
        cursor.execute("SELECT count(*) FROM orders")
        row = cursor.fetchone()
        assert row is not None
        assert len(lab.jobs()) == 1 + 2 * row[0]
    lab.work()
    assert set(lab.states()) == {"succeeded"}
    assert len(lab.jobs()) == (3 if end == "COMMIT" else 1)


def test_what_was_retried_in_a_cancelled_mission_can_be_cancelled_again(lab: Lab) -> None:
    mission = lab.run(
        {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "change", "params": {}}]}
    )
    assert lab.engine.cancel(mission.id)
    lab.engine.retry(lab.jobs()[0].id)
    assert lab.states() == ["held"]
    assert lab.engine.cancel(mission.id)
    assert lab.states() == ["cancelled"]
    assert not lab.engine.cancel(mission.id)
