"""Many runner processes share one queue, and any of them may be killed at any moment (R17)."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from pydantic import BaseModel, JsonValue
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import State
from lcp_engine.store import queue
from lcp_engine.store.ledger import ledger_of
from lcp_engine.workers.base import Outcome, Worker

pytestmark = pytest.mark.both

DRAIN = Path(__file__).with_name("drain.py")


class Anything(BaseModel, extra="allow"):
    """Whatever the processes take."""


def _unused(params: Anything, context: object) -> Outcome:
    raise AssertionError("this process executes nothing")


WORKERS = [
    Worker(kind=kind, params=Anything, result=Anything, execute=_unused).for_any_params()
    for kind in ("mark", "line")
]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    with Engine(database_url, workers=WORKERS) as engine:
        yield engine


class Crew:
    """Runner processes whose words all arrive in one pipe."""

    def __init__(self, url: str) -> None:
        self._url = url
        read, self._write = os.pipe()
        self._words = os.fdopen(read)
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, **options: object) -> subprocess.Popen[str]:
        process = Python(DRAIN, self._url, json.dumps(options), stdout=self._write, stderr=subprocess.PIPE)
        self.processes.append(process)
        return process

    def next_word(self) -> list[str]:
        return self._words.readline().split()

    def close(self) -> None:
        """Whatever is left of it."""
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
        self._words.close()
        if self._write >= 0:
            os.close(self._write)

    def end(self) -> list[list[str]]:
        """Wait for all; what they said since."""
        os.close(self._write)
        self._write = -1
        rest = [line.split() for line in self._words]
        for process in self.processes:
            _, error = process.communicate()
            assert (process.returncode, error) in ((0, ""), (-signal.SIGKILL, "")), error
        return rest


@pytest.fixture
def crew(database_url: str, engine: Engine) -> Iterator[Crew]:
    crew = Crew(database_url)
    yield crew
    crew.close()


@pytest.mark.proof
def test_a_queue_is_drained_once_whoever_is_killed(engine: Engine, crew: Crew) -> None:
    chance = random.Random(20)
    count = 300
    for n in range(count):
        engine.enqueue("mark", {"n": n, "seconds": 0.002})
    for _ in range(3):
        crew.start(threads=2, until_idle=True)
    words: list[list[str]] = []
    kills = 0
    for _ in range(8):
        words += [crew.next_word() for _ in range(chance.randrange(5, 30))]
        alive = [process for process in crew.processes if process.poll() is None]
        chance.choice(alive).kill()
        kills += 1
        crew.start(threads=2, until_idle=True)
    words += crew.end()
    executed = Counter(int(word[0]) for word in words if word[0] != "ready")
    assert set(executed) == set(range(count))
    _check_consistency(engine, {"succeeded": count})
    for job in engine.jobs():
        settled = [
            event for event in engine.events(job.mission_id, job_id=job.id) if event["event"] == "succeeded"
        ]
        assert len(settled) == 1
    deaths = engine.instance.database.read(lambda tx: tx.query_plain("SELECT sum(deaths) FROM jobs"))[0][0]
    assert deaths <= kills * 2, "only what a lane had started is charged"


def test_a_ring_reaches_other_processes_without_the_fallback(engine: Engine, crew: Crew) -> None:
    crew.start(poll_seconds=3600.0)
    assert crew.next_word() == ["ready"]
    for n in range(20):
        engine.enqueue("mark", {"n": n})
        number, *_ = crew.next_word()
        assert int(number) == n
    crew.processes[0].terminate()
    assert crew.end() == []


def test_a_stopped_runner_finishes_what_it_has_begun_and_gives_back_the_rest(
    engine: Engine, crew: Crew
) -> None:
    for n in range(200):
        engine.enqueue("mark", {"n": n, "seconds": 0.001})
    crew.start()
    for _ in range(30):
        crew.next_word()
    crew.processes[0].terminate()
    words = crew.end()
    succeeded = [job for job in engine.jobs() if job.state == "succeeded"]
    assert len(succeeded) == 29 + len(words)
    _check_consistency(engine, {"succeeded": len(succeeded), "queued": 200 - len(succeeded)})
    charged = engine.instance.database.read(
        lambda tx: tx.query_plain("SELECT sum(deaths) + sum(failures) FROM jobs")
    )
    assert charged == [(0,)]


def test_the_death_of_a_sibling_is_noticed_by_its_lock(engine: Engine, crew: Crew) -> None:
    engine.enqueue("mark", {"n": 1, "seconds": 60})
    victim = crew.start()
    while crew.next_word()[0] != "1":
        pass
    (leased,) = engine.jobs(states=["running"])
    crew.start(until_idle=True)
    # The lease would last for a while; only the lock can tell at once.
    engine.instance.database.write(
        lambda tx: tx.plain("UPDATE runners SET alive_until = alive_until + 3600000000")
    )
    engine.instance.database.write(
        lambda tx: tx.plain(f"UPDATE jobs SET params = '{{\"n\": 1}}' WHERE id = {leased.id}")
    )
    victim.kill()
    words = crew.end()
    assert [word[0] for word in words if word[0] != "ready"] == ["1"]
    stored = engine.job(leased.id).json
    assert isinstance(stored["attempts"], list)
    assert [a["outcome"] for a in stored["attempts"] if isinstance(a, dict)] == ["rescued", "succeeded"]


def test_the_death_of_a_sibling_is_heard_of_without_a_look(engine: Engine, crew: Crew) -> None:
    job = engine.enqueue("mark", {"n": 1, "seconds": 60})
    victim = crew.start()
    while crew.next_word()[0] != "1":
        pass
    crew.start(watch_seconds=3600.0)
    assert crew.next_word() == ["ready"]
    engine.enqueue("mark", {"n": 2})
    assert crew.next_word()[0] == "2", "it has looked for the dead as often as it will"
    victim.kill()
    assert crew.next_word()[0] == "1"
    assert engine.job(job).json["attempt"] == 2


@pytest.mark.proof
def test_a_lease_from_elsewhere_is_taken_back_when_it_runs_out_without_a_look(
    engine: Engine, crew: Crew
) -> None:
    engine.enqueue("mark", {"n": 1})
    database = engine.instance.database
    far = database.write(lambda tx: queue.add_runner(tx, uid="far", host="far", boot="another", pid=1))
    assert database.write(lambda tx: queue.claim(ledger_of(tx), queue.Scope(("mark",)), far, 1))
    database.write(lambda tx: tx.plain(f"UPDATE runners SET alive_until = {database.now() + 5 * SECOND}"))
    crew.start(watch_seconds=3600.0)
    assert crew.next_word() == ["ready"]
    assert crew.next_word()[0] == "1"


@pytest.mark.proof
def test_while_nobody_can_write_nobody_is_taken_for_dead(
    database_url: str, engine: Engine, crew: Crew
) -> None:
    """Another program holds the database for longer than a lease; the runners renew once it is free."""
    stall = queue.LEASE_SECONDS + 2
    job = engine.enqueue("mark", {"n": 1, "seconds": stall + 5})
    crew.start(until_idle=True)
    while crew.next_word()[0] != "1":
        pass
    crew.start(until_idle=True)
    assert crew.next_word() == ["ready"]
    with _held_by_another_program(database_url):
        time.sleep(stall)
    assert crew.end() == []
    assert engine.job(job).json["attempt"] == 1


@contextmanager
def _held_by_another_program(url: str) -> Iterator[None]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as outside:
            outside.execute("BEGIN IMMEDIATE")
            yield
    else:
        with psycopg.connect(url) as outside:
            outside.execute("LOCK TABLE runners IN EXCLUSIVE MODE")
            yield


@pytest.mark.proof
def test_a_stopped_process_keeps_its_lock_but_not_its_leases(engine: Engine, crew: Crew) -> None:
    job = engine.enqueue("mark", {"n": 1, "seconds": 1})
    stopped = crew.start(until_idle=True)
    while crew.next_word()[0] != "1":
        pass
    stopped.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    database = engine.instance.database
    database.write(lambda tx: tx.plain("UPDATE runners SET alive_until = 1"))
    crew.start(until_idle=True)
    assert (crew.next_word(), crew.next_word()[0]) == (["ready"], "1")
    while engine.job(job).state != "succeeded":
        assert stopped.poll() is None
    before, events = engine.job(job).json, engine.events(engine.job(job).mission_id)
    (uid,) = database.read(lambda tx: tx.query_plain("SELECT uid FROM runners WHERE alive_until = 1"))[0]
    assert (engine.instance.runtime / f"{uid}.lock").exists(), "it holds its lock"
    stopped.send_signal(signal.SIGCONT)
    assert crew.end() == []
    assert engine.job(job).json == before
    assert engine.events(engine.job(job).mission_id) == events
    assert isinstance(before["attempts"], list)
    assert [a["outcome"] for a in before["attempts"] if isinstance(a, dict)] == ["rescued", "succeeded"]
    assert database.read(lambda tx: tx.query_plain("SELECT deaths FROM jobs")) == [(0,)], "nobody died"


@pytest.mark.proof
def test_processes_that_append_to_one_file_lose_nothing(
    database_url: str, crew: Crew, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    policy: JsonValue = [{"kinds": ["*"], "do": "auto"}]
    spec: dict[str, JsonValue] = {
        "name": "append",
        "goal": "g",
        "planner": {"type": "script", "replies": []},
        "policy": policy,
    }
    with Engine(database_url, workers=WORKERS) as engine:
        missions = [engine.launch(spec, root=root).id for _ in range(2)]
        lines = [f"{mission}-{n}" for n in range(50) for mission in missions]
        for line in lines:
            engine.enqueue("line", {"path": "log.txt", "text": line}, mission_id=int(line.split("-")[0]))
        for _ in range(4):
            crew.start(kinds=["line"], until_idle=True)
        crew.end()
        assert sorted((root / "log.txt").read_text().split()) == sorted(lines)
        assert [path.name for path in root.iterdir()] == ["log.txt"]
        for mission in missions:
            assert [change["state"] for change in engine.changes(mission)] == ["applied"] * 50


def _check_consistency(engine: Engine, counts: dict[str, int]) -> None:
    for mission in engine.missions():
        jobs = engine.jobs(mission_id=mission.id)
        assert {state: n for state, n in mission.jobs.items() if n} == counts
        assert Counter(job.state for job in jobs) == {State(state): n for state, n in counts.items()}
        events = engine.events(mission.id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
