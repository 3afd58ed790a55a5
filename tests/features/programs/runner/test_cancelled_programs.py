"""What a program or command does for a job that was taken away ends at once, with all that it has started."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from tests.conftest import sqlite_url
from tests.features.programs.runner.test_external_programs import processes, wait_for
from tests.walls import EACH_WALL, NEEDS_LANDLOCK

from lcp_engine import Engine, Job
from lcp_engine.core.programs.walls import Step
from lcp_engine.engine.settle import rescue
from lcp_engine.features.programs.servers.external_worker import kinds_in
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queue import find_jobs, leasing_runners
from lcp_engine.workers.base import Worker

pytestmark = NEEDS_LANDLOCK


@pytest.fixture
def marker() -> str:
    """Seconds that nobody else sleeps for."""
    return f"600.{os.getpid()}{time.monotonic_ns()}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def kind(place: Path, marker: str, **stated: JsonValue) -> Worker[BaseModel]:
    """A kind whose program starts others, of which one leaves its session, and hangs."""
    program = place / "hangs.sh"
    program.write_text(f"#!/bin/sh\nsleep {marker} &\nsetsid sleep {marker} &\nsleep {marker}\n")
    program.chmod(0o755)
    (worker,) = kinds_in({"hangs": {"command": "./hangs.sh", "has_effects": False, **stated}}, place)
    return worker


@contextmanager
def working(engine: Engine) -> Iterator[threading.Thread]:
    """A runner that ends when nothing is left to do."""
    runner = threading.Thread(target=lambda: engine.work(until_idle=True))
    runner.start()
    yield runner
    runner.join(60)
    assert not runner.is_alive()


def hangs(marker: str) -> Callable[[], bool]:
    return lambda: len(processes(marker)) >= 3


def ends_with(engine: Engine, mission: int, marker: str) -> None:
    """Cancel the mission while its program hangs: the runner is at its end once that has ended."""
    with working(engine):
        wait_for(hangs(marker))
        engine.cancel(mission)
    assert processes(marker) == []
    assert engine.mission(mission).status == "cancelled"
    assert {job.state for job in engine.jobs(mission_id=mission)} <= {"cancelled", "succeeded"}


def outcomes(job: Job) -> list[JsonValue]:
    return [attempt["outcome"] for attempt in job.attempts if isinstance(attempt, dict)]


@pytest.mark.parametrize("long_lived", [False, True])
def test_the_program_of_a_cancelled_mission_ends(
    tmp_path: Path, root: Path, marker: str, *, long_lived: bool
) -> None:
    worker = kind(tmp_path, marker, long_lived=long_lived)
    jobs: JsonValue = [{"kind": "hangs", "params": {}}]
    asks: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    with Engine(sqlite_url(tmp_path), workers=[worker]) as engine:
        planner: JsonValue = {"type": "script", "replies": [asks]}
        mission = engine.launch({"goal": "Hang.", "planner": planner}, root=root).id
        ends_with(engine, mission, marker)
        (job,) = engine.jobs(mission_id=mission, kinds=["hangs"])
        assert (job.state, job.error, outcomes(job)) == ("cancelled", None, ["cancelled"])


@EACH_WALL
@pytest.mark.parametrize("is_check", [False, True])
def test_the_command_of_a_cancelled_mission_ends(
    tmp_path: Path, root: Path, marker: str, walls: Sequence[Step], *, is_check: bool
) -> None:
    script = f"sleep {marker} & setsid sleep {marker} & sleep {marker}"
    command: list[JsonValue] = ["sh", "-c", script]
    jobs: JsonValue = [{"kind": "run_command", "params": {"command": command}}]
    runs: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    claims: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    stated: dict[str, JsonValue] = {
        "goal": "Hang.",
        "planner": {"type": "script", "replies": [claims if is_check else runs]},
        "commands": {"allow": [["sh", "-c", "*"]], "seconds": 300},
        "policy": [{"kinds": ["run_command"], "do": "auto"}],
    }
    if is_check:
        stated["accept"] = [{"command": command}]
    with Engine(sqlite_url(tmp_path), commands_wall=walls) as engine:
        ends_with(engine, engine.launch(stated, root=root).id, marker)


def test_the_program_of_a_job_that_another_runner_took_over_ends(
    tmp_path: Path, root: Path, marker: str
) -> None:
    with Engine(sqlite_url(tmp_path), workers=[kind(tmp_path, marker)]) as engine:
        job_id = engine.enqueue("hangs", {})
        database = engine.instance.database
        with working(engine):
            wait_for(hangs(marker))
            before = set(processes(marker))
            (runner,) = database.read(lambda tx: leasing_runners(tx, 0))
            database.write(
                lambda tx: rescue(ledger_of(tx), find_jobs(tx, [job_id])[0], runner, has_started=True)
            )
            wait_for(lambda: before.isdisjoint(processes(marker)) and hangs(marker)())
            engine.cancel(engine.job(job_id).mission_id)
        assert processes(marker) == []
        assert outcomes(engine.job(job_id)) == ["rescued", "cancelled"]


def test_what_other_jobs_run_goes_on(tmp_path: Path, root: Path, marker: str) -> None:
    program = tmp_path / "waits.sh"
    program.write_text(
        f'#!/bin/sh\nwhile [ ! -e {root}/go ]; do sleep 0.05; done\necho \'{{"result": {{"ok": true}}}}\'\n'
    )
    program.chmod(0o755)
    stated: JsonValue = {
        "command": "./waits.sh",
        "has_effects": False,
        "needs": {"read": ["./root"]},
    }
    (waits,) = kinds_in({"waits": stated}, tmp_path)
    with Engine(sqlite_url(tmp_path), workers=[kind(tmp_path, marker), waits]) as engine:
        mission = engine.launch({"goal": "Hang.", "planner": {"type": "human"}}, root=root).id
        doomed = engine.enqueue("hangs", {}, mission_id=mission)
        kept = engine.enqueue("waits", {})
        runner = threading.Thread(target=lambda: engine.work(until_idle=True, threads=2))
        runner.start()
        wait_for(hangs(marker))
        engine.cancel(mission)
        wait_for(lambda: processes(marker) == [])
        (root / "go").touch()
        runner.join(60)
        assert engine.job(kept).result == {"ok": True}
        assert (engine.job(kept).attempt, engine.job(doomed).state) == (1, "cancelled")
