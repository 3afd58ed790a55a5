"""An undo while something is under way waits for it, and what it took back is not taken for done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python
from tests.runner.undo.conftest import Scene

from lcp_engine import LcpError
from lcp_engine.errors import ErrorCode
from lcp_engine.runner import undo as undoing
from lcp_engine.sandbox.atomic_write import LocalFile

WRITE: JsonValue = {"ok": True, "action": "write_file", "rel_path": "a", "content": "A\n"}
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}

DIES = """
import os, signal, sys
from lcp_engine import Engine
from lcp_engine.sandbox.atomic_write import LocalFile
put = LocalFile.put
def last(*given, **named):
    if sys.argv[3] == "after":
        put(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
LocalFile.put = last
with Engine(sys.argv[1], isolation="off") as engine:
    engine.work(until_idle=True, mission_id=int(sys.argv[2]))
"""


class Gate:
    """Holds a write between its intent and the file, until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = Event(), Event()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        put = LocalFile.put

        def held(
            file: LocalFile, data: bytes, temporary: str, mode: int | None = None, *, until: int | None = None
        ) -> None:
            self.reached.set()
            assert self.opened.wait(60), "it was never opened"
            put(file, data, temporary, mode, until=until)

        patch.setattr(LocalFile, "put", held)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    gate.install(monkeypatch)
    yield gate
    gate.opened.set()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def launch(scene: Scene) -> int:
    spec: dict[str, JsonValue] = {
        "goal": "Write.",
        "planner": {"type": "script", "replies": [WRITE, DONE]},
        "policy": [{"kinds": ["*"], "do": "auto"}],
    }
    return scene.engine.launch(spec, root=scene.root).id


def write_under_way(scene: Scene, gate: Gate, threads: ThreadPoolExecutor) -> tuple[int, Future[None]]:
    """A cancelled mission that is about to replace `a`, and its runner."""
    mission = launch(scene)
    work = threads.submit(scene.engine.work, until_idle=True, mission_id=mission)
    assert gate.reached.wait(60), "nothing is written"
    scene.engine.cancel(mission)
    return mission, work


def test_an_undo_waits_for_the_write_of_a_cancelled_mission(
    scene: Scene, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    before = scene.tree()
    mission, work = write_under_way(scene, gate, threads)
    undone = threads.submit(scene.engine.undo, mission)
    gate.opened.set()
    assert [file["path"] for file in undone.result(60).files] == ["a"]
    work.result(60)
    assert scene.tree() == before


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_undo_that_waited_long_enough_says_for_what(
    scene: Scene, gate: Gate, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setattr(undoing, "WAIT_SECONDS", 0.05)
    mission, work = write_under_way(scene, gate, threads)
    (job,) = scene.jobs(mission)
    with pytest.raises(LcpError, match=f"job {job} is still writing 'a'") as raised:
        scene.engine.undo(mission, dry_run=dry_run)
    assert raised.value.code is ErrorCode.WRONG_STATE
    gate.opened.set()
    work.result(60)
    assert len(scene.engine.undo(mission).files) == 1


def test_a_write_of_another_mission_to_the_same_file_is_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    mission = scene.write(("a", "overwrite", "mine\n"))
    gate = Gate()
    gate.install(monkeypatch)
    other, work = write_under_way(scene, gate, threads)
    try:
        with monkeypatch.context() as brief:
            brief.setattr(undoing, "WAIT_SECONDS", 0.05)
            with pytest.raises(LcpError, match="the directory of 'a' is being written") as waited:
                scene.engine.undo(mission)
        assert waited.value.code is ErrorCode.WRONG_STATE
    finally:
        gate.opened.set()
    work.result(60)
    with pytest.raises(
        LcpError, match=f"'a' was changed since by job {scene.jobs(other)[0]} of mission {other}"
    ):
        scene.engine.undo(mission)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_a_killed_runner_left_open_on_the_file_is_found_out_first(
    scene: Scene, emptied_database_url: str, moment: str
) -> None:
    mission = scene.write(("a", "overwrite", "mine\n"))
    other = launch(scene)
    assert Python("-c", DIES, emptied_database_url, other, moment).wait() == -signal.SIGKILL
    if moment == "after":
        with pytest.raises(LcpError, match=f"by job {scene.jobs(other)[0]} of mission {other}"):
            scene.engine.undo(mission)
    else:
        scene.engine.undo(mission)
        assert (scene.root / "a").read_text() == "a\n"
    scene.engine.work(until_idle=True)
    assert (scene.root / "a").read_text() == "A\n"
    assert {job.state for job in scene.engine.jobs(mission_id=other)} == {"succeeded"}


def undone_and_retried(scene: Scene, url: str) -> tuple[int, int]:
    """A mission that was killed after its write, cancelled and undone, whose job is then retried; and the job."""
    mission = launch(scene)
    assert Python("-c", DIES, url, mission, "after").wait() == -signal.SIGKILL
    scene.engine.cancel(mission)
    scene.engine.work(until_idle=True)
    scene.engine.undo(mission)
    assert (scene.root / "a").read_text() == "a\n"
    (job,) = scene.jobs(mission)
    scene.engine.retry(job)
    return mission, job


def test_a_retry_after_an_undo_writes_again(scene: Scene, emptied_database_url: str) -> None:
    before = scene.tree()
    mission, job = undone_and_retried(scene, emptied_database_url)
    scene.engine.work(until_idle=True)
    assert (scene.engine.job(job).state, (scene.root / "a").read_text()) == ("succeeded", "A\n")
    assert len(scene.engine.undo(mission).files) == 1
    assert scene.tree() == before
    assert scene.engine.undo(mission).job_id is None


def test_a_retry_after_the_undo_was_undone_writes_nothing(scene: Scene, emptied_database_url: str) -> None:
    mission, job = undone_and_retried(scene, emptied_database_url)
    scene.engine.cancel(mission)
    (undo,) = scene.engine.jobs(mission_id=mission, kinds=["undo"])
    scene.engine.undo(job_id=undo.id)
    scene.engine.retry(job)
    scene.engine.work(until_idle=True)
    assert (scene.engine.job(job).state, (scene.root / "a").read_text()) == ("succeeded", "A\n")
    assert [change["undoes"] is None for change in scene.engine.changes(mission)] == [True, False, False]
