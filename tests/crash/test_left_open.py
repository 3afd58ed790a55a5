"""An intent that no retry will reach is closed by the next runner (R20)."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python
from tests.patience import wait_until

from lcp_engine import Engine
from lcp_engine.changes import recovery
from lcp_engine.changes.recovery import close_left_open, open_root
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.runner import maintenance
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.db.database import Database

PATIENCE = 60.0
"""Seconds for what takes a moment on a machine that is not busy."""
DIES = """
import os, signal, sys
from lcp_engine import Engine
from lcp_engine.sandbox.system import syscalls
exchange = syscalls.exchange
def last(*given):
    if sys.argv[3] == "after":
        exchange(*given)
    os.kill(os.getpid(), signal.SIGKILL)
syscalls.exchange = last
with Engine(sys.argv[1], isolation="off") as engine:
    engine.work(until_idle=True, mission_id=int(sys.argv[2]))
"""


class Scene:
    """A mission whose runner died in the middle of a write to sub/a.txt."""

    def __init__(self, engine: Engine, url: str, root: Path) -> None:
        self.engine = engine
        self.url = url
        self.root = root
        self.threads = confined_threads(Isolation.AUTO)
        self.file = root / "sub" / "a.txt"
        self.file.parent.mkdir(parents=True)
        self.file.write_text("old\n")
        self.mission = engine.launch(_writing("sub/a.txt", "new\n"), root=root).id

    def die(self, moment: str) -> None:
        assert Python("-c", DIES, self.url, self.mission, moment).wait() == -signal.SIGKILL

    def die_and_cancel(self, moment: str) -> None:
        self.die(moment)
        self.engine.cancel(self.mission)
        faults = check_database(self.url)
        assert len(faults) == 1
        assert f"its intent to write {str(self.file)!r} should be closed; it is open" in faults[0]

    def close(self) -> list[object]:
        close_left_open(self.engine.instance.database, self.mission, self.threads)
        return self.states()

    def states(self) -> list[object]:
        return [change["state"] for change in self.engine.changes(self.mission)]

    def names(self) -> list[str]:
        return [path.name for path in self.file.parent.iterdir()]


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with Engine(database_url, isolation="off") as engine:
        yield Scene(engine, database_url, tmp_path / "root")


def test_a_write_that_happened_before_its_mission_was_cancelled_is_reported(scene: Scene) -> None:
    scene.die_and_cancel("after")
    assert scene.close() == ["applied"]
    (delivered, metrics) = _ended(scene)
    assert (delivered, '"files_written":1' in metrics) == ('["sub/a.txt"]', True)
    told = [event for event in scene.engine.events(scene.mission) if event["event"] == "found_written"]
    assert [event["data"] for event in told] == [{"path": "sub/a.txt"}]
    assert check_database(scene.url) == []


def test_a_write_that_did_not_happen_leaves_nothing_behind(scene: Scene) -> None:
    scene.die_and_cancel("before")
    assert len(scene.names()) == 2  # and a temporary file
    assert (scene.close(), scene.names(), scene.file.read_text()) == (["void"], ["a.txt"], "old\n")
    assert _ended(scene)[0] == "[]"
    assert check_database(scene.url) == []


def test_what_somebody_made_of_the_file_meanwhile_is_a_conflict(scene: Scene) -> None:
    scene.die_and_cancel("before")
    scene.file.unlink()
    scene.file.mkdir()
    assert (scene.close(), check_database(scene.url)) == (["conflict"], [])


def test_a_directory_that_is_gone_is_not_made_again(scene: Scene) -> None:
    scene.die_and_cancel("after")
    shutil.rmtree(scene.file.parent)
    assert (scene.close(), scene.file.parent.exists()) == (["conflict"], False)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_root_that_is_gone_or_leads_elsewhere_is_left_for_another_time(scene: Scene, is_link: bool) -> None:
    scene.die_and_cancel("after")
    aside = scene.root.rename(scene.root.with_name("aside"))
    if is_link:
        scene.root.symlink_to(aside)
    assert scene.close() == ["intent"]
    if is_link:
        scene.root.unlink()
    aside.rename(scene.root)
    assert scene.close() == ["applied"]


def test_nobody_is_waited_for(scene: Scene) -> None:
    scene.die_and_cancel("after")
    descriptor = os.open(scene.file.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert scene.close() == ["intent"]
    finally:
        os.close(descriptor)
    assert scene.close() == ["applied"]


def test_a_root_that_hangs_costs_only_its_own_missions(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`open_root` stands for open(2) on a file system that does not answer."""
    scene.die_and_cancel("after")
    answers = threading.Event()

    def hang(database: Database, mission_id: int, path: str, place: str | None) -> Root:
        answers.wait()
        return open_root(database, mission_id, path, place)

    monkeypatch.setattr(recovery, "open_root", hang)
    monkeypatch.setattr(maintenance, "END_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "HANG_SECONDS", 0.0)
    (other := tmp_path / "other").mkdir()
    runner = scene.engine.runner()
    works = threading.Thread(target=runner.run)
    works.start()
    until = time.monotonic() + PATIENCE
    try:
        mission = scene.engine.launch(_writing("b.txt", "healthy\n"), root=other).id
        while scene.engine.mission(mission).status != "completed" or not caplog.messages:
            assert works.is_alive()
            assert time.monotonic() < until, (scene.engine.mission(mission), caplog.messages)
            time.sleep(0.01)
        assert caplog.messages == [
            f"root {scene.root} does not answer; what a dead runner left open there has to wait"
        ]
        assert scene.states() == ["intent"]
    finally:
        runner.stop()
        works.join(PATIENCE)
        answers.set()
    assert not works.is_alive()
    scene.engine.work(until_idle=True)
    wait_until(lambda: scene.states() != ["intent"], "the root answers, and nothing was recovered there")
    assert scene.states() == ["applied"]


@pytest.mark.proof
@pytest.mark.skipif(shutil.which("bindfs") is None, reason="it mounts a directory with bindfs")
def test_a_file_system_that_hangs_stops_no_runner(sqlite_copy_url: str, tmp_path: Path) -> None:
    (mounted := tmp_path / "mounted").mkdir()
    (other := tmp_path / "other").mkdir()
    (tmp_path / "under").mkdir()
    mounting = subprocess.Popen(["bindfs", "-f", str(tmp_path / "under"), str(mounted)])
    try:
        until = time.monotonic() + PATIENCE
        while not mounted.is_mount():
            assert mounting.poll() is None
            assert time.monotonic() < until, "it was not mounted"
        with Engine(sqlite_copy_url, isolation="off") as engine:
            scene = Scene(engine, sqlite_copy_url, mounted)
            scene.die_and_cancel("before")
            mounting.send_signal(signal.SIGSTOP)
            mission = engine.launch(_writing("b.txt", "healthy\n"), root=other).id
            works = Python("-m", "lcp_engine", "--db", sqlite_copy_url, "work")
            try:
                until = time.monotonic() + PATIENCE
                while engine.mission(mission).status != "completed":
                    assert works.poll() is None
                    assert time.monotonic() < until, "a runner waits for a file system that hangs"
                    time.sleep(0.01)
                works.terminate()
                assert works.wait(PATIENCE) == 0
            finally:
                works.kill()
            assert scene.states() == ["intent"]
            mounting.send_signal(signal.SIGCONT)
            engine.work(until_idle=True)
            assert scene.states() == ["void"]
    finally:
        mounting.send_signal(signal.SIGCONT)
        mounting.terminate()
        mounting.wait()


def test_the_intent_of_a_job_that_is_leased_is_not_touched(scene: Scene) -> None:
    scene.die("after")
    assert [job.state for job in scene.engine.jobs(kinds=["write_file"])] == ["running"]
    assert scene.close() == ["intent"]
    scene.engine.work(until_idle=True)
    assert scene.states() == ["applied"]
    assert scene.engine.mission(scene.mission).status == "completed"


def test_a_root_within_another_sees_the_intents_of_that(scene: Scene) -> None:
    scene.die("after")
    inner = scene.engine.launch(_writing("a.txt", "inner\n"), root=scene.file.parent).id
    scene.engine.work(until_idle=True, mission_id=inner)
    assert scene.states() == ["applied"]  # closed before the file changed again
    inode = scene.file.stat().st_ino
    scene.engine.work(until_idle=True)
    states = {job.mission_id: job.state for job in scene.engine.jobs(kinds=["write_file"])}
    assert states == {scene.mission: "succeeded", inner: "succeeded"}
    assert (scene.file.read_text(), scene.file.stat().st_ino) == ("inner\n", inode)
    paths = [(change["root"], change["path"]) for change in scene.engine.changes(inner)]
    assert paths == [(str(scene.file.parent), "a.txt")]


def _ended(scene: Scene) -> tuple[str, str]:
    query = f"SELECT deliverables, metrics FROM missions WHERE id = {scene.mission}"
    ((delivered, metrics),) = scene.engine.instance.database.read(lambda tx: tx.query_plain(query))
    return delivered, metrics


def _writing(path: str, content: str) -> dict[str, JsonValue]:
    new_jobs: list[JsonValue] = [{"kind": "write_file", "params": {"rel_path": path, "content": content}}]
    replies: list[JsonValue] = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs},
        {"ok": True, "action": "mission_complete", "summary": "done"},
    ]
    return {
        "name": "left open",
        "goal": "Write.",
        "policy": [{"kinds": ["*"], "do": "auto"}],
        "planner": {"type": "script", "replies": replies},
    }
