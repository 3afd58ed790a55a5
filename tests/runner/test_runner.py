"""One runner: leases last while it lives, what hangs blocks nobody, the end comes when all is done (R17, R19)."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from tests.patience import PATIENCE_SECONDS, in_thread, join, wait_until

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import State
from lcp_engine.engine import missions
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner import executor
from lcp_engine.runner.confined import process
from lcp_engine.runner.confined.process import BIRTHS, ForkRefused, Spawner
from lcp_engine.runner.lane import Lane
from lcp_engine.runner.runner import MAX_CLAIM, Runner
from lcp_engine.store import queue
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.workers.base import Context, Outcome, Worker

pytestmark = pytest.mark.both


class Params(BaseModel):
    """`n` names the job."""

    n: int = 0


class Shop:
    """Workers that a test opens the doors of: `wait` hangs until then, `quick` does not, `fail` breaks.

    `blind` looks at nothing, and waits for its job 3.
    """

    def __init__(self) -> None:
        self.door = threading.Event()
        self.begun = threading.Event()
        self.executed: list[int] = []

    def workers(self, timeout: float) -> list[Worker[BaseModel]]:
        kinds = {"wait": self.wait, "quick": self.quick, "fail": self.fail, "blind": self.blind}
        return [
            Worker(
                kind=kind,
                params=Params,
                result=Params,
                execute=execute,
                has_effects=False,
                timeout=timeout if kind in ("wait", "blind") else 60.0,
                max_attempts=2,
                backoff=0.01,
                looks=kind != "blind",
            ).for_any_params()
            for kind, execute in kinds.items()
        ]

    def wait(self, params: Params, context: Context) -> Outcome:
        self.begun.set()
        self.door.wait()
        self.executed.append(params.n)
        return params

    def quick(self, params: Params, context: Context) -> Outcome:
        self.executed.append(params.n)
        return params

    def blind(self, params: Params, context: Context) -> Outcome:
        return self.wait(params, context) if params.n == 3 else self.quick(params, context)

    def fail(self, params: Params, context: Context) -> Outcome:
        self.executed.append(params.n)
        raise SystemExit(params.n)


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.door.set()


def test_a_hanging_worker_blocks_nobody_and_its_late_result_changes_nothing(
    database_url: str, shop: Shop
) -> None:
    with Engine(database_url, workers=shop.workers(timeout=0.05)) as engine:
        hanging = engine.enqueue("wait", {"n": 1})
        quick = [engine.enqueue("quick", {"n": n}) for n in range(2, 6)]
        engine.work(until_idle=True)
        # Those that waited behind the hanging one are given back, and may be claimed again one by one.
        assert sorted(shop.executed) == [2, 3, 4, 5]
        assert {engine.job(job).state for job in quick} == {"succeeded"}
        before = engine.job(hanging).json
        assert (before["state"], _code(before)) == ("failed", "TIMEOUT")
        assert _outcomes(before) == ["backed_off", "failed"]
        shop.door.set()
        for thread in threading.enumerate():
            if thread.name.startswith("lcp-lane"):
                thread.join()
        assert sorted(shop.executed) == [1, 1, 2, 3, 4, 5]
        assert engine.job(hanging).json == before
        assert engine.jobs(states=["running", "queued"]) == [], "a lane that was left claims nothing more"


def test_a_new_mission_starts_after_at_most_one_batch_of_another(database_url: str) -> None:
    """The other mission has thousands of jobs, and one of them queues the new mission's job."""
    started: list[int] = []

    def start(params: Params, context: Context) -> Outcome:
        started.append(params.n)
        if params.n == 500:
            engine.enqueue("start", {"n": 0}, mission_id=new)
        return params

    worker = Worker("start", Params, Params, start, has_effects=False).for_any_params()
    with Engine(database_url, workers=[worker]) as engine:
        old, new = engine.instance.database.write(
            lambda tx: [missions.open_queue(ledger_of(tx), name) for name in ("old", "new")]
        )

        def fill(tx: Tx) -> None:
            for n in range(1, 2501):
                missions.enqueue(ledger_of(tx), worker, old, {"n": n}, name=None, priority=0, run_after=None)

        engine.instance.database.write(fill)
        engine.work(until_idle=True)
        assert sorted(started) == list(range(2501))
        assert started.index(0) - started.index(500) <= MAX_CLAIM


def test_what_waits_behind_a_slow_job_goes_to_others(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(timeout=60)) as engine, ThreadPoolExecutor(1) as threads:
        for n in range(100):
            engine.enqueue("quick", {"n": n})
        engine.enqueue("wait", {"n": 100})
        later = [engine.enqueue("quick", {"n": n}) for n in range(101, 111)]
        runner = Runner(engine.instance, threads=2, until_idle=True)
        running = threads.submit(runner.run)
        shop.begun.wait()
        _wait_beside(running, lambda: {engine.job(job).state for job in later} == {"succeeded"})
        shop.door.set()
        running.result()
        assert sorted(shop.executed) == list(range(111))


@pytest.fixture
def _all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many jobs a lane claims is not left to the clock."""
    monkeypatch.setattr(Lane, "claim_size", lambda lane, most, quick_seconds: most)


@pytest.mark.usefixtures("_all_at_once")
def test_of_jobs_that_are_executed_together_only_the_one_that_hangs_is_done_again(
    database_url: str, shop: Shop
) -> None:
    with Engine(database_url, workers=shop.workers(timeout=1.0)) as engine:
        jobs = [engine.enqueue("blind", {"n": n}) for n in range(6)]
        engine.work(until_idle=True)
        shop.door.set()
        for thread in threading.enumerate():
            if thread.name.startswith("lcp-lane"):
                thread.join()
        assert sorted(shop.executed) == [0, 1, 2, 3, 3, 4, 5]
        outcomes = [_outcomes(engine.job(job).json) for job in jobs]
        assert outcomes == [["backed_off", "failed"] if n == 3 else ["succeeded"] for n in range(6)]


@pytest.mark.usefixtures("_all_at_once")
def test_of_jobs_that_are_executed_together_those_behind_a_slow_one_go_to_others(
    database_url: str, shop: Shop
) -> None:
    with Engine(database_url, workers=shop.workers(timeout=60)) as engine, ThreadPoolExecutor(1) as threads:
        jobs = [engine.enqueue("blind", {"n": n}) for n in range(6)]
        running = threads.submit(Runner(engine.instance, threads=2, until_idle=True).run)
        _wait_beside(running, lambda: [engine.job(job).state for job in jobs].count(State.SUCCEEDED) == 5)
        shop.door.set()
        running.result()
        assert sorted(shop.executed) == list(range(6))


@pytest.mark.usefixtures("_all_at_once")
def test_writes_behind_one_whose_directory_is_held_go_to_others(database_url: str, tmp_path: Path) -> None:
    for name in ("held", "free"):
        (tmp_path / "root" / name).mkdir(parents=True)
    paths = ["held/a.txt", *(f"free/{n}.txt" for n in range(3))]
    spec: dict[str, JsonValue] = {
        "goal": "Write.",
        "planner": {"type": "script", "replies": []},
        "policy": [{"kinds": ["*"], "do": "auto"}],
    }
    with Engine(database_url) as engine, ThreadPoolExecutor(1) as threads:
        mission = engine.launch(spec, root=tmp_path / "root").id
        directory = os.open(tmp_path / "root" / "held", os.O_RDONLY)
        fcntl.flock(directory, fcntl.LOCK_EX)
        jobs = [
            engine.enqueue("write_file", {"rel_path": path, "content": "x\n"}, mission_id=mission)
            for path in paths
        ]
        runner = Runner(engine.instance, threads=2, until_idle=True, kinds=["write_file"], mission_id=mission)
        running = threads.submit(runner.run)
        _wait_beside(running, lambda: [engine.job(job).state for job in jobs].count(State.SUCCEEDED) == 3)
        assert engine.job(jobs[0]).state in ("running", "queued")  # it waits for its file
        os.close(directory)
        running.result()
        assert [_outcomes(engine.job(job).json) for job in jobs] == [["succeeded"]] * 4
        assert [change["state"] for change in engine.changes(mission)] == ["applied"] * 4


def test_one_ring_brings_as_many_lanes_as_there_are_jobs(database_url: str, shop: Shop) -> None:
    all_at_once = threading.Barrier(4, timeout=60)

    def meet(params: Params, context: Context) -> Outcome:
        all_at_once.wait(60)
        return params

    meeting = Worker(
        kind="meet", params=Params, result=Params, execute=meet, has_effects=False
    ).for_any_params()
    with Engine(database_url, workers=[meeting]) as engine, ThreadPoolExecutor(1) as threads:
        runner = Runner(engine.instance, threads=4, max_claim=1, poll_seconds=3600)
        running = threads.submit(runner.run)
        with Engine(database_url, workers=[meeting]) as other:
            for _ in range(20):
                jobs = other.instance.database.write(lambda tx: _enqueue(tx, meeting, 4))
                while {other.job(job).state for job in jobs} != {"succeeded"}:
                    assert not running.done()
                    time.sleep(0.001)
        runner.stop()
        running.result()


def test_a_runner_that_another_outran_hears_the_next_ring(database_url: str) -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(params: Params, context: Context) -> Outcome:
        both.wait(60)
        return params

    meeting = Worker(
        kind="meet", params=Params, result=Params, execute=meet, has_effects=False, max_attempts=1
    ).for_any_params()
    with (
        Engine(database_url, workers=[meeting]) as here,
        Engine(database_url, workers=[meeting]) as there,
        Engine(database_url, workers=[meeting]) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        runners = [Runner(engine.instance, max_claim=1, poll_seconds=3600) for engine in (here, there)]
        running = [threads.submit(runner.run) for runner in runners]
        for n in range(30):
            jobs = [other.enqueue("meet", {"n": n}) for _ in range(2)]
            while {other.job(job).state for job in jobs} & {"queued", "running"}:
                assert not any(one.done() for one in running)
                time.sleep(0.001)
            assert {other.job(job).state for job in jobs} == {"succeeded"}
        for runner in runners:
            runner.stop()
        for one in running:
            one.result()


def test_whatever_a_worker_raises_fails_its_job_only(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(timeout=60)) as engine:
        failing = engine.enqueue("fail", {"n": 7})
        fine = engine.enqueue("quick", {"n": 8})
        engine.work(until_idle=True)
        stored = engine.job(failing).json
        assert (stored["state"], _code(stored)) == ("failed", "WORKER_FAILED")
        assert _outcomes(stored) == ["backed_off", "failed"]
        assert engine.job(fine).state == "succeeded"
        assert shop.executed.count(7) == 2


def test_a_runner_that_had_nothing_to_do_renews_its_leases_with_the_next_claim(
    database_url: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "LEASE_SECONDS", 0.0)  # it has had nothing to do for that long
    now = [1_000 * SECOND]
    with (
        Engine(database_url, workers=shop.workers(timeout=60), clock=lambda: now[0]) as engine,
        ThreadPoolExecutor(1) as threads,
    ):
        runner = Runner(engine.instance)
        running = threads.submit(runner.run)
        engine.enqueue("quick", {"n": 1})
        _wait_beside(running, lambda: shop.executed == [1])
        now[0] += 3600 * SECOND
        engine.enqueue("wait", {"n": 2})
        shop.begun.wait()
        query = "SELECT alive_until FROM runners"
        assert engine.instance.database.read(lambda tx: tx.query_plain(query)) == [(now[0] + queue.LEASE,)]
        shop.door.set()
        runner.stop()
        running.result()


def test_a_runner_renews_its_leases_whatever_the_databases_clock_does(
    database_url: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcp_engine.runner.leases.HEARTBEAT_SECONDS", 0.0)
    now = [10_000 * SECOND]
    with Engine(database_url, workers=shop.workers(timeout=60), clock=lambda: now[0]) as engine:
        engine.enqueue("wait", {"n": 1})
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(Runner(engine.instance, until_idle=True).run)
            shop.begun.wait()
            query, read = "SELECT alive_until FROM runners", engine.instance.database.read
            for step in (queue.LEASE - SECOND, -3600 * SECOND, 0):
                now[0] += step
                before = read(lambda tx: tx.query_plain(query))
                while read(lambda tx: tx.query_plain(query)) == before:
                    assert not running.done()
                    time.sleep(0.02)
            shop.door.set()
            running.result()


def test_until_idle_waits_for_delayed_jobs_and_not_for_held_ones(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(timeout=60)) as engine:
        held = engine.enqueue("quick", {"n": 1})
        engine.instance.database.write(
            lambda tx: tx.plain(f"UPDATE jobs SET state = 'held' WHERE id = {held}")
        )
        engine.enqueue("quick", {"n": 2}, delay=0.3)
        engine.work(until_idle=True)
        assert shop.executed == [2]
        assert engine.job(held).state == "held"


def test_until_idle_waits_for_what_others_have_leased(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(timeout=60)) as engine, ThreadPoolExecutor(2) as threads:
        engine.enqueue("wait", {"n": 1})
        first = threads.submit(engine.work, until_idle=True)
        shop.begun.wait()
        second = threads.submit(engine.work, until_idle=True)
        read = engine.instance.database.read
        wait_until(lambda: len(read(lambda tx: tx.query_plain("SELECT id FROM runners"))) == 2)
        assert not second.done()
        shop.door.set()
        first.result()
        second.result()
        assert shop.executed == [1]


def test_a_runner_that_is_stopped_before_it_runs_ends_at_once(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(timeout=60)) as engine:
        engine.enqueue("quick", {"n": 1})
        runner = Runner(engine.instance)
        runner.stop()
        runner.run()
        assert shop.executed == []


def test_a_runner_that_cannot_open_what_it_needs_leaves_nothing_behind(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(timeout=60)) as engine:
        engine.work(until_idle=True)  # what a process opens once is open from here on
        gc.collect()
        before, runtime = own_descriptors(), engine.instance.runtime
        failed = 0
        for descriptors in count(first_free()):
            try:
                with at_most(descriptors):
                    engine.work(until_idle=True)
                break
            except (LcpError, OSError):
                failed += 1
            assert own_descriptors() - before == Counter()
            assert [*runtime.glob("*.sock"), *runtime.glob("*.lock")] == []
        there = engine.instance.database.read(
            lambda tx: tx.query_plain("SELECT id FROM runners WHERE ended_at IS NULL")
        )
    assert failed > 2
    assert there == []


def own_descriptors() -> Counter[str]:
    """What a runner opens for itself: pipes and what the kernel tells it through. The database has others."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing
            links.append(str(descriptor.readlink()))
    return Counter(
        link for link in links if link.startswith(("pipe", "anon_inode:[eventfd]", "anon_inode:inotify"))
    )


def first_free() -> int:
    """The number of the next descriptor."""
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    return free


@contextmanager
def at_most(descriptors: int) -> Iterator[None]:
    """No descriptor of that number or above can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_runner_takes_only_kinds_that_have_a_worker(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(timeout=60)) as engine:
        with pytest.raises(LcpError, match="'unheard_of'") as refused:
            Runner(engine.instance, kinds=["unheard_of"])
        assert refused.value.code is ErrorCode.NO_WORKER


def _wait_beside(running: Future[None], holds: Callable[[], bool]) -> None:
    """Wait until it holds, which it does before the runner ends."""

    def seen() -> bool:
        found = holds()
        assert found or not running.done()
        return found

    wait_until(seen)


def _enqueue(tx: Tx, worker: Worker[BaseModel], count: int) -> list[int]:
    ledger = ledger_of(tx)
    mission = missions.open_queue(ledger, "jobs")
    return [
        missions.enqueue(ledger, worker, mission, {}, name=None, priority=0, run_after=None)
        for _ in range(count)
    ]


def _code(job: dict[str, JsonValue]) -> JsonValue:
    error = job["error"]
    assert isinstance(error, dict)
    return error["error_code"]


def _outcomes(job: dict[str, JsonValue]) -> list[JsonValue]:
    attempts = job["attempts"]
    assert isinstance(attempts, list)
    return [attempt["outcome"] for attempt in attempts if isinstance(attempt, dict)]


def test_a_stop_of_the_engine_ends_work_after_the_job_under_way(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(60.0)) as engine:
        work = threading.Thread(target=engine.work, daemon=True)
        work.start()
        job = engine.enqueue("wait")
        assert shop.begun.wait(PATIENCE_SECONDS)
        engine.stop()
        later = engine.enqueue("quick")
        shop.door.set()
        join(work)
        assert (engine.job(job).state, engine.job(later).state) == ("succeeded", "queued")
        engine.work(until_idle=True)
        assert engine.job(later).state == "succeeded", "a stop is for what runs then"


def test_leaving_the_engine_ends_work_and_waits_for_the_job_under_way(database_url: str, shop: Shop) -> None:
    def open_the_door_when_stopped() -> None:
        engine.work(kinds=["quick"])
        shop.door.set()

    with Engine(database_url, workers=shop.workers(60.0)) as engine:
        job = engine.enqueue("wait", {"n": 7})
        threads = [
            threading.Thread(target=one, daemon=True) for one in (engine.work, open_the_door_when_stopped)
        ]
        for thread in threads:
            thread.start()
        assert shop.begun.wait(PATIENCE_SECONDS)
    assert shop.executed == [7]
    for thread in threads:
        join(thread)
    with Engine(database_url) as engine:
        assert engine.job(job).state == "succeeded"


def test_a_stop_before_work_is_not_lost(database_url: str, shop: Shop) -> None:
    with Engine(database_url, workers=shop.workers(60.0)) as engine:
        engine.stop()
        engine.work()  # ends at once
        engine.stop()
        job = engine.enqueue("quick")
        engine.work(until_idle=True)  # ends by itself
        assert engine.job(job).state == "succeeded"


def test_a_runner_that_gets_no_threads_waits_for_them_and_says_so(
    database_url: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = threading.Thread.start, Counter[str]()

    def scarce(thread: threading.Thread) -> None:
        kind = thread.name.rstrip("0123456789")
        if kind in ("lcp-lane-", "lcp-timetable", "lcp-deaths") and refused[kind] < 3 - 2 * (
            kind == "lcp-deaths"
        ):
            refused[kind] += 1
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    told: list[str] = []
    with Engine(database_url, workers=shop.workers(60.0)) as engine:
        job = engine.enqueue("wait")
        runner = engine.runner(threads=2)
        runner.tell = told.append
        with in_thread(runner.run, runner.stop):
            wait_until(lambda: refused["lcp-timetable"] == 3)
            shop.door.set()
            wait_until(lambda: engine.job(job).state == "succeeded")
        assert refused == {"lcp-lane-": 3, "lcp-timetable": 3, "lcp-deaths": 1}
        assert len(told) == 1
        assert "no further process or thread: can't start new thread; this runner waits" in told[0]


def test_a_job_that_the_system_has_no_process_for_is_charged_with_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = Spawner._fork, count()

    def scarce(spawner: Spawner, start: bytes, connection: int, root: int) -> int | None:
        if next(refused) < 4 * BIRTHS:  # more jobs than attempts
            raise ForkRefused("Resource temporarily unavailable")
        return real(spawner, start, connection, root)

    monkeypatch.setattr(Spawner, "_fork", scarce)
    monkeypatch.setattr(process, "BIRTH_PAUSE", 0.0)
    monkeypatch.setattr(executor, "SHORTAGE_SECONDS", 0)
    (tmp_path / "a.txt").write_text("a\n")
    with Engine(database_url, isolation="require") as engine:
        spec: dict[str, JsonValue] = {"goal": "g", "planner": {"type": "script", "replies": []}}
        mission = engine.launch(spec, root=tmp_path).id
        jobs = [engine.enqueue("read_file", {"rel_path": "a.txt"}, mission_id=mission)]
        engine.work(until_idle=True, kinds=["read_file"])
        found = engine.job(jobs[0])
        assert (found.state, found.json["attempt"]) == ("succeeded", 5)
        assert found.json["max_attempts"] == 3, "the four that had no process are not counted"
        released = [one for one in engine.events(mission_id=mission) if one["event"] == "released"]
        assert len(released) == 4
        assert all("starts no further process or thread" in str(one["data"]) for one in released)
