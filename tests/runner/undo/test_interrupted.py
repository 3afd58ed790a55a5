"""An undo whose process died after it was decided is completed by the next process."""

from __future__ import annotations

import signal

import pytest
from tests.loaded_python import Python
from tests.runner.undo.conftest import Scene

from lcp_engine import LcpError
from lcp_engine.errors import ErrorCode

pytestmark = pytest.mark.proof

DIES = """
import os, signal, sys
from lcp_engine import Engine
from lcp_engine.sandbox.system import syscalls
def die(*given): os.kill(os.getpid(), signal.SIGKILL)
syscalls.exchange = die
with Engine(sys.argv[1], isolation="off") as engine:
    engine.undo(int(sys.argv[2]))
"""


class Interrupted:
    """A mission that created `g` and then changed `a`, whose undo died when `a` was to be brought back."""

    def __init__(self, scene: Scene, url: str) -> None:
        self.scene, self.engine = scene, scene.engine
        self.before = scene.tree()
        self.mission = scene.write(("a", "overwrite", "A\n"), ("g", "overwrite", "g\n"))
        assert Python("-c", DIES, url, self.mission).wait() == -signal.SIGKILL
        (job,) = self.engine.jobs(kinds=["undo"])
        self.job = job.id

    def state(self) -> str:
        return self.engine.job(self.job).state


@pytest.fixture
def interrupted(scene: Scene, emptied_database_url: str) -> Interrupted:
    return Interrupted(scene, emptied_database_url)


def test_the_next_undo_finishes_it_and_says_so(interrupted: Interrupted) -> None:
    done = interrupted.engine.undo(interrupted.mission)
    assert (done.resumed, done.job_id, done.files) == (interrupted.job, None, ())
    assert (interrupted.scene.tree(), interrupted.state()) == (interrupted.before, "succeeded")


def test_it_is_finished_as_what_it_is(interrupted: Interrupted) -> None:
    done = interrupted.engine.finish_undo(interrupted.job)
    assert (done.resumed, done.job_id) == (None, interrupted.job)
    assert [(file["path"], file["change"]) for file in done.files] == [("g", "removed"), ("a", "changed")]
    assert (interrupted.scene.tree(), interrupted.state()) == (interrupted.before, "succeeded")
    assert interrupted.engine.finish_undo(interrupted.job) == done


def test_a_runner_finishes_it(interrupted: Interrupted) -> None:
    interrupted.engine.work(until_idle=True)
    assert (interrupted.scene.tree(), interrupted.state()) == (interrupted.before, "succeeded")


def test_a_dry_run_refuses_while_it_is_not_finished(interrupted: Interrupted) -> None:
    with pytest.raises(LcpError) as raised:
        interrupted.engine.undo(interrupted.mission, dry_run=True)
    assert raised.value.code is ErrorCode.WRONG_STATE


def test_a_job_that_writes_the_file_finishes_it_first(interrupted: Interrupted) -> None:
    scene = interrupted.scene
    second = scene.write(("a", "append", "B\n"))
    assert (scene.root / "a").read_text() == "a\nB\n"
    interrupted.engine.work(until_idle=True)
    assert ((scene.root / "a").read_text(), interrupted.state()) == ("a\nB\n", "succeeded")
    interrupted.engine.undo(second)
    assert scene.tree() == interrupted.before


def test_a_cancelled_mission_does_not_forget_it(interrupted: Interrupted) -> None:
    interrupted.engine.cancel(interrupted.mission)
    interrupted.engine.work(until_idle=True)
    assert (interrupted.scene.tree(), interrupted.state()) == (interrupted.before, "cancelled")
    assert interrupted.engine.mission(interrupted.mission).deliverables == []
    with pytest.raises(LcpError, match=f"undo, job {interrupted.job}, is cancelled"):
        interrupted.engine.finish_undo(interrupted.job)
    events = interrupted.engine.events(interrupted.mission)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_a_file_changed_in_between_is_left_alone_and_named(interrupted: Interrupted) -> None:
    scene = interrupted.scene
    (scene.root / "a").write_text("mine\n")
    with pytest.raises(LcpError, match="'a' has been changed since the last change of a job") as raised:
        interrupted.engine.undo(interrupted.mission)
    assert raised.value.code is ErrorCode.CONFLICT
    assert ((scene.root / "a").read_text(), (scene.root / "g").exists()) == ("mine\n", False)
    job = interrupted.engine.job(interrupted.job)
    assert job.error is not None
    assert (job.state, job.error["error_code"]) == ("failed", "CONFLICT")
    assert "'a' has been changed in the meantime" in str(job.error["user_message"])
