"""Limits delay jobs, keep nothing else from running, and hold for all runners together."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.limits.permits import UNLIMITED, Limit
from lcp_engine.engine import missions
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.settle import FinishedJob, rescue, settle
from lcp_engine.features.shared_permits.store import PermitOffice, state_kinds
from lcp_engine.store import queue
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queue import Scope
from lcp_engine.store.row_types import JobRow, RunnerRow
from lcp_engine.workers.base import Worker

EACH_SECOND = Limit(spacing=SECOND, burst=2)
TWO_AT_ONCE = Limit(max_running=2)
SLOTS = Path(__file__).with_name("slots.py")


class Nothing(BaseModel):
    """No params."""


def _worker(kind: str) -> Worker[BaseModel]:
    return Worker(
        kind=kind, params=Nothing, result=Nothing, execute=lambda params, context: params, has_effects=False
    ).for_any_params()


class Stall:
    """A database whose clock the test sets, with runners that claim and settle without executing anything."""

    def __init__(self, engine: Engine, now: list[Micros]) -> None:
        self.engine = engine
        self.now = now
        self.offices: dict[int, PermitOffice] = {}

    def open(self, *kinds: str) -> int:
        """A runner for these kinds, without any for all; its id."""
        runner: int = self._write(
            lambda tx: queue.add_runner(tx, uid=f"r{len(self.offices)}", host="elsewhere", boot="?", pid=1)
        )
        self.scope = Scope(kinds or ("free", "rated"))
        self.offices[runner] = PermitOffice(self.scope, queue.ALL_MISSIONS, count().__next__)
        return runner

    def limit(self, **limits: Limit) -> None:
        """What the runner that was started last states."""
        self._write(lambda tx: state_kinds(tx, limits))

    def claim(self, runner: int, most: int = 10) -> list[JobRow]:
        def work(tx: Tx) -> list[JobRow]:
            office = self.offices[runner]
            return queue.claim(ledger_of(tx), self.scope, runner, most, throttle=office)

        return self.engine.instance.database.write(work)

    def finish(self, runner: int, job: JobRow) -> None:
        self.offices[runner].note_ended([job])
        finished = FinishedJob(job.copy(), Succeeded("{}"))
        self._write(lambda tx: settle(ledger_of(tx), finished, random.Random(1)))

    def give_back(self, runner: int, *jobs: JobRow) -> None:
        def work(tx: Tx) -> None:
            for job in jobs:
                queue.release(ledger_of(tx), job.copy())
            self.offices[runner].give_back(ledger_of(tx), jobs)

        self._write(work)

    def next_look(self, runner: int) -> Micros | None:
        return self.engine.instance.database.read(self.offices[runner].next_look)

    def waiting(self) -> dict[str | None, int]:
        return Counter(job.limited_by for job in self.engine.jobs(states=["queued"]))

    def _write(self, work: Callable[[Tx], object]) -> int:
        done = self.engine.instance.database.write(work)
        return done if isinstance(done, int) else 0


@pytest.fixture
def stall(database_url: str) -> Iterator[Stall]:
    now: list[Micros] = [1_800_000_000 * SECOND]
    with Engine(database_url, workers=[_worker("free"), _worker("rated")], clock=lambda: now[0]) as engine:
        yield Stall(engine, now)


def kinds(jobs: list[JobRow]) -> dict[str, int]:
    return Counter(job.kind for job in jobs)


def test_what_a_rate_delays_waits_and_what_is_behind_it_runs(stall: Stall) -> None:
    runner = stall.open()
    stall.limit(rated=EACH_SECOND)
    rated = [stall.engine.enqueue("rated") for _ in range(5)]
    for _ in range(3):
        stall.engine.enqueue("free")
    assert kinds(stall.claim(runner)) == {"rated": 2, "free": 3}
    waiting = stall.engine.job(rated[2])
    assert (waiting.state, waiting.limited_by) == ("queued", "kind:rated")
    assert waiting.reason == "kind rated may start 60 times a minute (rate_limit)"
    assert stall.next_look(runner) == stall.now[0] + SECOND
    assert stall.claim(runner) == []
    stall.now[0] += SECOND
    (next_,) = stall.claim(runner)
    assert next_.id == rated[2]
    assert stall.engine.job(rated[2]).reason is None


def test_thousands_of_delayed_jobs_hide_nothing(stall: Stall) -> None:
    runner = stall.open()
    stall.limit(rated=Limit(spacing=SECOND))
    mission = stall.engine.mission(stall.engine.job(stall.engine.enqueue("rated")).mission_id).id

    def fill(tx: Tx) -> None:
        tx.plain(
            "INSERT INTO jobs (mission_id, kind, params, state, created_at) "
            f"SELECT mission_id, kind, params, state, created_at FROM jobs WHERE mission_id = {mission}"
        )

    for _ in range(11):  # 2048
        stall.engine.instance.database.write(fill)
    stall.engine.instance.database.write(lambda tx: tx.plain("UPDATE missions SET queued = 2048"))
    free = stall.engine.enqueue("free")
    assert [kinds([job]) for job in stall.claim(runner, 1)] == [{"rated": 1}]
    assert [job.id for job in stall.claim(runner, 1)] == [free]
    assert stall.claim(runner, 1) == []


def test_permits_go_to_missions_in_turn(stall: Stall) -> None:
    runner = stall.open()
    stall.limit(rated=Limit(spacing=SECOND))
    of_first = [stall.engine.enqueue("rated") for _ in range(6)]
    assert [job.id for job in stall.claim(runner)] == of_first[:1]
    database = stall.engine.instance.database
    other = database.write(lambda tx: missions.open_queue(ledger_of(tx), "other"))
    of_other = [stall.engine.enqueue("rated", mission_id=other) for _ in range(2)]
    assert stall.claim(runner) == []
    started = []
    for _ in range(5):
        stall.now[0] += SECOND
        started += [job.id for job in stall.claim(runner)]
    assert started == [of_other[0], of_first[1], of_other[1], *of_first[2:4]]


def test_the_most_urgent_of_those_that_wait_goes_first(stall: Stall) -> None:
    runner = stall.open()
    stall.limit(rated=Limit(spacing=SECOND))
    for _ in range(3):
        stall.engine.enqueue("rated")
    stall.claim(runner)
    urgent = stall.engine.enqueue("rated", priority=5)
    assert stall.claim(runner) == []
    stall.now[0] += SECOND
    assert [job.id for job in stall.claim(runner)] == [urgent]


def test_runners_share_a_rate(stall: Stall) -> None:
    runners = [stall.open() for _ in range(4)]
    stall.limit(rated=EACH_SECOND)
    for _ in range(20):
        stall.engine.enqueue("rated")
    counts = []
    for _ in range(4):
        counts.append(sum(len(stall.claim(runner)) for runner in runners))
        stall.now[0] += SECOND
    assert counts == [2, 1, 1, 1]


def test_max_running_counts_running_jobs_only(stall: Stall) -> None:
    first, second = stall.open(), stall.open()
    stall.limit(rated=TWO_AT_ONCE)
    for _ in range(5):
        stall.engine.enqueue("rated")
    (one,) = stall.claim(first, 1)
    (two,) = stall.claim(second)
    assert stall.waiting() == {"kind:rated": 3}
    assert (
        stall.engine.jobs(states=["queued"])[0].reason
        == "as many jobs run as kind rated may have (max_running: 2)"
    )
    assert stall.claim(first) == []
    stall.finish(first, one)
    assert len(stall.claim(first)) == 1
    gone = RunnerRow(second, "r1", "elsewhere", "?", 1, 0)
    stall._write(lambda tx: rescue(ledger_of(tx), two.copy(), gone, has_started=True))
    assert len(stall.claim(first)) == 1, "the place of a runner that died is free"
    assert stall.claim(first) == []


def test_the_runner_that_was_started_last_states_the_limit(stall: Stall) -> None:
    first = stall.open()
    stall.limit(rated=Limit(spacing=SECOND, burst=9))
    stall.limit(rated=EACH_SECOND)
    for _ in range(9):
        stall.engine.enqueue("rated")
    assert len(stall.claim(first)) == 2
    stall.limit(rated=UNLIMITED)
    assert len(stall.claim(first, 9)) == 7, "without a limit nothing waits any longer"


def test_a_lower_limit_holds_at_once(stall: Stall) -> None:
    runner = stall.open()
    stall.limit(rated=Limit(max_running=5))
    for _ in range(9):
        stall.engine.enqueue("rated")
    claimed = stall.claim(runner)
    assert len(claimed) == 5
    stall.limit(rated=TWO_AT_ONCE)
    for job in claimed[:3]:
        stall.finish(runner, job)
        assert stall.claim(runner) == []
    stall.finish(runner, claimed[3])
    assert len(stall.claim(runner)) == 1


def test_jobs_that_were_not_started_give_their_permits_back(stall: Stall) -> None:
    runner = stall.open()
    stall.limit(rated=EACH_SECOND)
    for _ in range(4):
        stall.engine.enqueue("rated")
    claimed = stall.claim(runner)
    stall.give_back(runner, claimed[1])
    assert [job.id for job in stall.claim(runner)] == [claimed[1].id]
    assert stall.claim(runner) == []


@pytest.mark.parametrize("step", [-3600, -(10**8), 3600])
def test_a_clock_that_is_set_delays_by_one_permit_and_frees_one_burst(stall: Stall, step: int) -> None:
    runner = stall.open()
    stall.limit(rated=EACH_SECOND)
    for _ in range(9):
        stall.engine.enqueue("rated")
    assert len(stall.claim(runner)) == 2
    stall.now[0] += step * SECOND
    assert len(stall.claim(runner)) == (2 if step > 0 else 0)
    stall.now[0] += SECOND
    assert len(stall.claim(runner)) == 1


def test_a_mission_limits_its_own_jobs_of_a_kind(stall: Stall) -> None:
    runner = stall.open()
    limited: dict[str, JsonValue] = {
        "goal": "Wait.",
        "planner": {"type": "script", "replies": []},
        "kinds": {
            "free": {"max_running": 1},
            "rated": {"rate_limit": {"requests_per_minute": 60, "burst": 1}},
        },
    }
    mission = stall.engine.launch(limited, root=".").id
    for _ in range(3):
        stall.engine.enqueue("free", mission_id=mission)
        stall.engine.enqueue("rated", mission_id=mission)
        stall.engine.enqueue("free")
    claimed = stall.claim(runner)
    assert kinds([job for job in claimed if job.mission_id == mission]) == {"free": 1, "rated": 1}
    assert kinds([job for job in claimed if job.mission_id != mission]) == {"free": 3}
    assert stall.waiting() == {
        None: 1, f"mission:{mission}:kind:free": 2, f"mission:{mission}:kind:rated": 2
    }  # fmt: skip


def test_a_mission_limits_how_many_of_its_jobs_run(stall: Stall) -> None:
    runner = stall.open()
    limited: dict[str, JsonValue] = {
        "goal": "Wait.", "planner": {"type": "script", "replies": []}, "limits": {"max_running": 2}
    }  # fmt: skip
    mission = stall.engine.launch(limited, root=".").id
    for _ in range(4):
        stall.engine.enqueue("free", mission_id=mission)
    other = stall.engine.enqueue("free")
    claimed = stall.claim(runner)
    assert [job.id for job in claimed if job.mission_id != mission] == [other]
    assert sum(job.mission_id == mission for job in claimed) == 2
    waiting = next(job for job in stall.engine.jobs(states=["queued"]) if job.limited_by)
    assert (waiting.limited_by, waiting.reason) == (
        f"mission:{mission}",
        f"as many jobs run as mission {mission} may have (max_running: 2)",
    )
    stall.finish(runner, claimed[0])
    assert len(stall.claim(runner)) == 1


def test_a_mission_limits_how_many_steps_of_its_plan_run(stall: Stall) -> None:
    runner = stall.open()
    steps: list[JsonValue] = [
        {"id": f"step-{number:03}", "tool": "free", "parameters": {}} for number in range(1, 5)
    ]
    steps.append({"id": "step-005", "tool": "free", "parameters": {}, "dependencies": ["step-001"]})
    stated: dict[str, JsonValue] = {"goal": "Wait.", "plan": {"steps": steps}, "limits": {"max_running": 2}}
    mission = stall.engine.launch(stated, root=".").id
    running = stall.claim(runner)
    assert [job.id for job in running] == [1, 2]
    assert stall.claim(runner) == []
    for begins in ([3], [4], [5], [], []):
        stall.finish(runner, running.pop(0))
        begun = stall.claim(runner)
        assert [job.id for job in begun] == begins
        running += begun
    assert stall.engine.mission(mission).outcome == "plan_complete"


def test_missions_share_the_limit_of_a_models_server(stall: Stall) -> None:
    stall.scope = Scope(("agent_plan",))
    runner = stall.open("agent_plan")
    endpoint = ("http://127.0.0.1:8080/v1 some", Limit(max_running=2))
    stall.offices[runner] = PermitOffice(
        stall.scope, queue.ALL_MISSIONS, count().__next__, endpoint_of=lambda spec: endpoint
    )
    spec: dict[str, JsonValue] = {"goal": "Wait.", "planner": {"type": "script", "replies": []}}
    for _ in range(5):
        stall.engine.launch(spec, root=".")
    claimed = stall.claim(runner)
    assert len(claimed) == 2
    assert stall.waiting() == {"planner:http://127.0.0.1:8080/v1 some": 3}
    stall.give_back(runner, claimed[0])
    assert len(stall.claim(runner)) == 1


def test_a_runner_of_other_kinds_leaves_alone_what_waits(stall: Stall) -> None:
    runner = stall.open()
    stall.limit(rated=Limit(spacing=SECOND))
    for _ in range(3):
        stall.engine.enqueue("rated")
    stall.claim(runner)
    other = stall.open("free")
    assert stall.next_look(other) is None
    stall.now[0] += SECOND
    assert stall.claim(other) == []
    assert stall.waiting() == {"kind:rated": 2}


def test_a_job_that_waits_can_be_cancelled_and_retried(stall: Stall) -> None:
    runner = stall.open()
    stall.limit(rated=Limit(spacing=SECOND))
    jobs = [stall.engine.enqueue("rated") for _ in range(2)]
    stall.claim(runner)
    mission = stall.engine.job(jobs[1]).mission_id
    stall.engine.cancel(mission)
    cancelled = stall.engine.job(jobs[1])
    assert (cancelled.state, cancelled.limited_by) == ("cancelled", None)
    assert stall.next_look(runner) is None


def test_a_database_says_how_many_jobs_wait_for_what(stall: Stall) -> None:
    from lcp_engine.store.queries.stats import overview_in

    runner = stall.open()
    stall.limit(rated=EACH_SECOND)
    for _ in range(5):
        stall.engine.enqueue("rated")
    stall.claim(runner)
    assert stall.engine.instance.database.read(lambda tx: overview_in(tx, None)).waiting == {"kind:rated": 3}


def test_processes_together_keep_to_max_running(database_url: str, tmp_path: Path) -> None:
    jobs = 40
    with Engine(database_url, workers=[_worker("slot")]) as engine:
        ids = [engine.enqueue("slot") for _ in range(jobs)]
        processes = [Python(SLOTS, database_url, tmp_path) for _ in range(3)]
        assert [process.wait() for process in processes] == [0, 0, 0]
        assert Counter(engine.job(job).state for job in ids) == {"succeeded": jobs}
        assert {engine.job(job).attempt for job in ids} == {1}
