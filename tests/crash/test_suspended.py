"""A runner suspended in a write for longer than its lease writes once and overrides no other runner (R17, R20)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.changes.journal import FRESH_SECONDS
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.sandbox.system.landlock import Isolation, isolates

pytestmark = pytest.mark.proof

WORKS = """
import signal, sys
from threading import get_ident
from lcp_engine import Engine
from lcp_engine.changes.journal import Journal

URL, MISSION, ISOLATION, MOMENT = sys.argv[1:]
put = Journal._put

def stop_once(moment):
    global MOMENT
    if MOMENT == moment:
        MOMENT = "never"
        signal.pthread_kill(get_ident(), signal.SIGSTOP)  # at once

def stops(*given):
    stop_once("before")
    late = put(*given)
    stop_once("after")
    return late

Journal._put = stops
with Engine(URL, isolation=ISOLATION) as engine:
    engine.work(until_idle=True, mission_id=int(MISSION), kinds=["write_file"])
"""
SPEC: dict[str, JsonValue] = {
    "goal": "Write.",
    "planner": {"type": "script", "replies": []},
    "policy": [{"kinds": ["write_file"], "do": "auto"}],
}


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as processes:
        yield processes


# Every two of them together: all eight would wait for as many leases.
@pytest.mark.parametrize(
    ("database_url", "isolation", "moment"),
    [
        ("sqlite_copy_url", Isolation.AUTO, "before"),
        ("sqlite_copy_url", Isolation.OFF, "after"),
        ("postgres_url", Isolation.AUTO, "after"),
        ("postgres_url", Isolation.OFF, "before"),
    ],
    indirect=["database_url"],
)
def test_a_write_happens_once_whoever_is_suspended_in_it(
    database_url: str, tmp_path: Path, started: ExitStack, isolation: Isolation, moment: str
) -> None:
    if isolation is Isolation.AUTO and not isolates(isolation):
        pytest.skip("this kernel has no Landlock")
    (log := tmp_path / "root" / "log.txt").parent.mkdir()
    with Engine(database_url, isolation="off") as engine:
        mission = engine.launch(SPEC, root=log.parent).id
        params: dict[str, JsonValue] = {"rel_path": "log.txt", "mode": "append", "content": "line\n"}
        job = engine.enqueue("write_file", params, mission_id=mission)
        given = [database_url, str(mission), str(isolation)]
        suspended = _start(started, [*given, moment])
        os.waitid(os.P_PID, suspended.pid, os.WSTOPPED | os.WNOWAIT)
        engine.instance.database.write(lambda tx: tx.plain("UPDATE runners SET alive_until = 1"))
        other = _start(started, [*given, "never"])
        while "released" not in [event["event"] for event in engine.events(mission)]:
            assert other.poll() is None  # it waits for the file, and is charged with no attempt
        suspended.send_signal(signal.SIGCONT)
        assert (suspended.wait(), other.wait()) == (0, 0)
        stored = engine.job(job).json
        assert log.read_text() == "line\n"
        # Suspended for longer than it may count on its lease, the first one leaves the file to the other.
        states = ["void", "applied"] if moment == "before" else ["applied"]
        assert [change["state"] for change in engine.changes(mission)] == states
        assert isinstance(stored["attempts"], list)
        outcomes = [attempt["outcome"] for attempt in stored["attempts"] if isinstance(attempt, dict)]
        assert (stored["state"], outcomes) == ("succeeded", ["rescued", "succeeded"])
    assert check_database(database_url) == []


@pytest.mark.parametrize("isolation", [Isolation.OFF, Isolation.AUTO])
def test_a_write_that_was_given_up_meanwhile_does_not_happen(
    database_url: str, tmp_path: Path, started: ExitStack, isolation: Isolation
) -> None:
    if isolation is Isolation.AUTO and not isolates(isolation):
        pytest.skip("this kernel has no Landlock")
    (log := tmp_path / "root" / "log.txt").parent.mkdir()
    with Engine(database_url, isolation="off") as engine:
        mission = engine.launch(SPEC, root=log.parent).id
        job = engine.enqueue("write_file", {"rel_path": "log.txt", "content": "late\n"}, mission_id=mission)
        suspended = _start(started, [database_url, str(mission), str(isolation), "before"])
        os.waitid(os.P_PID, suspended.pid, os.WSTOPPED | os.WNOWAIT)
        engine.cancel(mission)
        time.sleep(FRESH_SECONDS)
        suspended.send_signal(signal.SIGCONT)
        assert suspended.wait() == 0
        assert not log.exists()
        assert [change["state"] for change in engine.changes(mission)] == ["void"]
        assert engine.job(job).state == "cancelled"
    assert check_database(database_url) == []


def _start(started: ExitStack, given: Sequence[str]) -> Python:
    process = Python("-c", WORKS, *given)
    started.callback(process.wait)
    started.callback(process.kill)
    return process
