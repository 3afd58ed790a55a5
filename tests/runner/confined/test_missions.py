"""A mission has the same results confined or not, and recovers from the death of a process in a write."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url

from lcp_engine.api.engine import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.confined.channel import Buffer, Head
from lcp_engine.runner.confined.process import ConfinedProcess
from lcp_engine.runner.confined.remote_files import RemoteBatch, RemoteFile, Steps
from lcp_engine.sandbox.atomic_write import LockedFile
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.locks import Put
from lcp_engine.sandbox.system import landlock
from lcp_engine.sandbox.system.landlock import Isolation, examine_isolation

WRITE: dict[str, JsonValue] = {
    "name": "n",
    "kind": "write_file",
    "params": {"rel_path": "new/b.txt", "content": "one line\n", "mode": "append"},
}
SPEC: dict[str, JsonValue] = {
    "name": "m",
    "goal": "g",
    "policy": [{"kinds": ["write_file"], "do": "auto"}],
    "planner": {
        "type": "script",
        "replies": [
            {"ok": True, "action": "create_followup_jobs", "new_jobs": [
                {"name": "l", "kind": "list_files", "params": {}},
                {"name": "r", "kind": "read_file", "params": {"rel_path": "a.txt"}},
                {"name": "o", "kind": "read_file", "params": {"rel_path": "../outside/secret.txt"}},
                {"name": "s", "kind": "read_file", "params": {"rel_path": ".env"}},
            ]},
            {"ok": True, "action": "create_followup_jobs", "new_jobs": [WRITE]},
            {"ok": True, "action": "mission_complete", "summary": "done"},
        ],
    },
}  # fmt: skip


def kill(process: ConfinedProcess) -> None:
    assert process._pidfd is not None
    signal.pidfd_send_signal(process._pidfd, signal.SIGKILL)


def run(database_url: str, place: Path, isolation: Isolation) -> list[tuple[object, ...]]:
    with Engine(database_url, isolation=isolation) as engine:
        mission = engine.launch(SPEC, root=place)
        engine.work(until_idle=True)
        jobs = engine.jobs(mission_id=mission.id)
        return [(job.kind, job.state, job.result, job.error and job.error["user_message"]) for job in jobs]


def test_a_mission_comes_to_the_same_confined_or_not(database_url: str, place: Path) -> None:
    confined = run(database_url, place, Isolation.REQUIRE)
    assert (place / "new" / "b.txt").read_text() == "one line\n"
    (place / "new" / "b.txt").unlink()
    (place / "new").rmdir()
    plain = run(database_url, place, Isolation.OFF)
    assert confined == plain


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_dies_in_a_write_costs_no_effect_and_makes_none_twice(
    database_url: str, place: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    put = RemoteBatch.put
    deaths: list[int] = []

    def dies_once(
        batch: RemoteBatch, puts: Sequence[Put], starts: Callable[[int], None]
    ) -> list[LcpError | None]:
        if moment == "after" and not deaths:
            put(batch, puts, starts)
        if not deaths:
            deaths.append(1)
            kill(batch._steps.process)
        return put(batch, puts, starts)

    monkeypatch.setattr(RemoteBatch, "put", dies_once)
    rows = run(database_url, place, Isolation.REQUIRE)
    assert deaths
    assert ("write_file", "succeeded") in [row[:2] for row in rows]
    assert (place / "new" / "b.txt").read_text() == "one line\n"
    assert [one.name for one in (place / "new").iterdir()] == ["b.txt"]


def test_a_process_that_dies_while_it_reads_a_file_is_no_drift(
    database_url: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(database_url, isolation=Isolation.REQUIRE) as engine:
        mission = engine.launch({**SPEC, "policy": [{"kinds": ["write_file"], "do": "hold"}]}, root=place).id
        engine.work(until_idle=True)
        (held,) = engine.jobs(mission_id=mission, kinds=["write_file"])
        engine.approve(held.id)
        (place / "new" / "b.txt").mkdir(parents=True)
        deaths: list[int] = []
        monkeypatch.setattr(Steps, "take", _dies_once(deaths, "read unlocked"))
        engine.work(until_idle=True)
        found = [event["data"] for event in engine.events(mission) if event["event"] == "drifted"]
        assert deaths
        assert found == [{"path": "new/b.txt", "approved": None, "found": "NOT_A_FILE"}]
        assert engine.job(held.id).json["reason"] == "drift"


def test_a_process_that_dies_while_it_previews_a_held_job_leaves_no_sight_of_it(
    database_url: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths: list[int] = []
    monkeypatch.setattr(Steps, "take", _dies_once(deaths, "read unlocked"))
    with Engine(database_url, isolation=Isolation.REQUIRE) as engine:
        mission = engine.launch({**SPEC, "policy": [{"kinds": ["write_file"], "do": "hold"}]}, root=place).id
        engine.work(until_idle=True)
        (held,) = engine.jobs(mission_id=mission, kinds=["write_file"])
        assert deaths
        engine.approve(held.id)
        engine.work(until_idle=True)
        assert (engine.job(held.id).state, engine.mission(mission).turns) == ("succeeded", 3)


def test_every_step_on_a_file_has_its_twin_in_the_process_that_can_write() -> None:
    steps = {name for name, step in vars(LockedFile).items() if callable(step) and not name.startswith("_")}
    assert steps
    assert steps - {"replace", "bring_to"} <= set(vars(RemoteFile))  # which are made of the others


def test_a_kernel_without_landlock_is_refused_where_isolation_is_required(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    none: Callable[[], None] = lambda: None  # noqa: E731 -- stands for the kernel's answer
    monkeypatch.setattr(landlock, "landlock_version", none)
    with Engine(database_url, isolation=Isolation.REQUIRE) as engine:
        with pytest.raises(LcpError, match="offers no Landlock") as refused:
            engine.work(until_idle=True)
        assert refused.value.code is ErrorCode.NOT_ISOLATED
    assert examine_isolation(Isolation.REQUIRE).grade == "fail"
    assert examine_isolation(Isolation.AUTO).grade == "warn"
    assert not landlock.isolates(Isolation.AUTO)


@pytest.mark.parametrize("mode", ["off", "auto", "require"])
def test_a_mode_of_isolation_may_be_a_plain_string(tmp_path: Path, place: Path, mode: str) -> None:
    with Engine(sqlite_url(tmp_path), isolation=mode) as engine:
        assert confined_threads(engine.instance.isolation).active == (mode != "off")


def test_an_unknown_mode_of_isolation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LcpError, match="isolation is 'on'; it must be one of require, auto, off") as refused:
        Engine(sqlite_url(tmp_path), isolation="on")
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


def _dies_once(deaths: list[int], step: str) -> Callable[..., tuple[Head, Buffer]]:
    """Takes steps in a process that is killed before the first one of this name."""
    take = Steps.take

    def dies_once(
        steps: Steps, head: Head, body: Buffer = b"", starts: Callable[[int], object] | None = None
    ) -> tuple[Head, Buffer]:
        if head["do"] == step and not deaths:
            deaths.append(1)
            kill(steps.process)
        return take(steps, head, body, starts)

    return dies_once
