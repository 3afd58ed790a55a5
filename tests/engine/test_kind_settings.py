"""The section `kinds` of a mission sets timeout and attempts of its jobs: they are the operator's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pydantic import BaseModel, JsonValue
from tests.engine.conftest import Lab

from lcp_engine import Engine
from lcp_engine.core.mission.spec import KindSettings, Retry
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.workers.base import Context, Outcome, Worker

ASKED: JsonValue = {
    "ok": True,
    "action": "create_followup_jobs",
    "new_jobs": [{"kind": "flaky", "params": {}}],
}
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


def test_a_mission_sets_how_often_a_job_is_tried(lab: Lab) -> None:
    lab.failures["flaky"] = 3
    lab.run(ASKED, DONE, kinds={"flaky": {"retry": {"max_attempts": 4, "delay": 0}}})
    (job,) = lab.jobs()
    assert (job.state, job.attempt, job.max_attempts) == ("succeeded", 4, 4)


def test_without_settings_a_kind_keeps_its_own(lab: Lab) -> None:
    lab.failures["flaky"] = 9
    lab.run(ASKED, DONE, kinds={"do": {"retry": {"max_attempts": 4}}})
    (job,) = lab.jobs()
    assert (job.state, job.attempt, job.max_attempts) == ("failed", 3, 3)


def test_what_a_planner_says_of_attempts_is_a_warning(lab: Lab) -> None:
    spec: JsonValue = {"kind": "flaky", "params": {}, "retry": {"max_attempts": 9}, "timeout": 900}
    asked: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": [spec]}
    lab.run(asked, DONE, kinds={"flaky": {"retry": {"max_attempts": 1}}})
    (job,) = lab.jobs()
    assert job.max_attempts == 1
    warned = " ".join(str(found["warnings"]) for found in lab.engine.warnings(1))
    assert "retry" in warned
    assert "timeout" in warned


def test_jobs_without_a_planner_and_turns_keep_to_the_settings_too(lab: Lab) -> None:
    mission = lab.launch(
        DONE, kinds={"do": {"retry": {"max_attempts": 5}}, "agent_plan": {"retry": {"max_attempts": 7}}}
    )
    lab.engine.enqueue("do", mission_id=mission)
    attempts = {job.kind: job.max_attempts for job in lab.engine.jobs(mission_id=mission)}
    assert attempts == {"agent_plan": 7, "do": 5}


def test_jobs_are_enqueued_run_and_listed_by_the_ids_of_their_tools(lab: Lab) -> None:
    mission = lab.launch(DONE)
    lab.engine.enqueue("tool-do", mission_id=mission)
    lab.engine.enqueue("flaky", mission_id=mission)
    lab.engine.work(until_idle=True, kinds=["tool-do"])
    (job,) = lab.engine.jobs(kinds=["tool-do"])
    assert (job.kind, job.state) == ("do", "succeeded")
    assert [one.state for one in lab.engine.jobs(kinds=["tool-flaky"])] == ["queued"]


def test_one_kind_has_its_settings_once(lab: Lab) -> None:
    with pytest.raises(LcpError) as refused:
        lab.launch(DONE, kinds={"do": {"timeout": 1}, "tool-do": {"timeout": 2}})
    assert "kinds.tool-do: this is the kind do, as is kinds.do" in str(refused.value)


@pytest.fixture
def door() -> Iterator[threading.Event]:
    door = threading.Event()
    yield door
    door.set()


def test_an_attempt_ends_at_the_missions_timeout(emptied_database_url: str, door: threading.Event) -> None:
    class Nothing(BaseModel):
        """No params."""

    def wait(params: Nothing, context: Context) -> Outcome:
        door.wait()
        return params

    waits = Worker("wait", Nothing, Nothing, wait, has_effects=False, timeout=3600.0, backoff=0.001)
    settings: dict[str, JsonValue] = {"wait": {"timeout": 0.05, "retry": {"max_attempts": 1}}}
    spec: dict[str, JsonValue] = {
        "goal": "Wait.",
        "planner": {"type": "script", "replies": []},
        "kinds": settings,
    }
    with Engine(emptied_database_url, workers=[waits.for_any_params()]) as engine:
        mission = engine.launch(spec, root=".").id
        job = engine.enqueue("wait", mission_id=mission)
        engine.work(until_idle=True, kinds=["wait"])
        assert engine.job(job).error is not None
        assert "did not end within 0.05 s" in str(engine.job(job).error)


def test_a_fork_and_a_replay_keep_the_settings(lab: Lab) -> None:
    lab.failures["flaky"] = 2
    mission = lab.run(ASKED, DONE, kinds={"flaky": {"retry": {"max_attempts": 9, "delay": 0}}}).id
    forked = lab.engine.fork(mission, turn=1).id
    assert lab.engine.kind_settings(forked) == {"flaky": {"retry": {"max_attempts": 9, "delay": 0.0}}}
    lab.work()
    assert [job.max_attempts for job in lab.jobs(forked)] == [9]
    assert lab.engine.replay(mission).is_same


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"flakey": {}}, "mission: kinds.flakey: no worker executes this kind; did you mean 'flaky'?"),
        ({"undo": {}}, "mission: kinds.undo: no worker executes this kind; "),
        ({"ask_user": {}}, "mission: kinds.ask_user: a person answers its jobs, so they have no attempts"),
    ],
)
def test_settings_for_what_no_worker_executes_are_refused(lab: Lab, kinds: JsonValue, said: str) -> None:
    with pytest.raises(LcpError) as refused:
        lab.launch(DONE, kinds=kinds)
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert str(refused.value).startswith(said)


def test_a_worker_without_settings_is_the_same(lab: Lab) -> None:
    worker = lab.engine.workers["do"]
    assert worker.under(None) is worker
    set_ = worker.under(KindSettings(retry=Retry(delay=2)))
    assert (set_.timeout, set_.max_attempts, set_.backoff) == (worker.timeout, worker.max_attempts, 2)
