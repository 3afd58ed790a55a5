"""After a death in the middle of a write, the retry writes, leaves the file or asks a person, as the file is (R20)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python

from lcp_engine import Engine

WRITE: dict[str, JsonValue] = {"rel_path": "a.txt", "content": "new\n"}
SPEC: dict[str, JsonValue] = {
    "name": "conflict",
    "goal": "Write.",
    "policy": [{"kinds": ["*"], "do": "auto"}],
    "planner": {
        "type": "script",
        "replies": [
            {
                "ok": True,
                "action": "create_followup_jobs",
                "new_jobs": [{"kind": "write_file", "params": WRITE}],
            },
            {"ok": True, "action": "mission_complete", "summary": "done"},
        ],
    },
}
DIES = """
import os, pathlib, signal, sys
from lcp_engine import Engine
from lcp_engine.sandbox.system import syscalls
def die(*given): os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "before":
    syscalls.exchange = die
else:
    exchange, left = syscalls.exchange, [pathlib.Path(file) for file in sys.argv[4:]]
    def last(*given):
        if left:
            left.pop().write_text("mine\\n")
            exchange(*given)
            if sys.argv[3] == "exchanged":
                die()
            return True
        exchange(*given)
        die()
    syscalls.exchange = last
with Engine(sys.argv[1], isolation="off") as engine:
    engine.work(until_idle=True, mission_id=int(sys.argv[2]))
"""
"""Dies before or after it gives the name to the new content. For a file that it is given it writes to that before, and
dies when it has `exchanged` the two, or has put them `back`."""


MEDDLES = """
import os, pathlib, sys
from lcp_engine import Engine
fsync = os.fsync
file = pathlib.Path(sys.argv[3])
def meddle(descriptor):
    fsync(descriptor)
    if ".lcp-" in os.readlink(f"/proc/self/fd/{descriptor}"):
        os.fsync = fsync
        file.write_text("mine\\n")
os.fsync = meddle
with Engine(sys.argv[1], isolation="off") as engine:
    if sys.argv[4] == "work":
        engine.work(until_idle=True, mission_id=int(sys.argv[2]))
    else:
        engine.undo(int(sys.argv[2]))
"""
"""Another program writes the file once the new content is on the disk, and before it takes the place of the old one."""


class Scene:
    """A mission with one file, whose runner died in the middle of the write."""

    def __init__(self, engine: Engine, url: str, root: Path) -> None:
        self.engine = engine
        self._url = url
        self.root = root
        self.file = root / "a.txt"
        self.file.write_text("old\n")
        self.file.chmod(0o640)
        self.mission = engine.launch(SPEC, root=root).id

    def die(self, moment: str, *files: str) -> None:
        assert Python("-c", DIES, self._url, self.mission, moment, *files).wait() == -signal.SIGKILL

    def meddle(self, what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", MEDDLES, self._url, str(self.mission), str(self.file), what]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    def work(self) -> str:
        """Finish the mission; the state of the write, after checking that no other file was left."""
        self.engine.work(until_idle=True)
        assert [path.name for path in self.root.iterdir()] == ["a.txt"], "a temporary file was left"
        (job,) = self.engine.jobs(kinds=["write_file"])
        return job.state

    def changes(self) -> list[object]:
        return [change["state"] for change in self.engine.changes(self.mission)]


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    root = tmp_path / "root"
    root.mkdir()
    with Engine(database_url, isolation="off") as engine:
        yield Scene(engine, database_url, root)


def test_a_file_that_is_as_before_is_written_once(scene: Scene) -> None:
    scene.die("before")
    assert scene.file.read_text() == "old\n"
    assert scene.work() == "succeeded"
    assert (scene.file.read_text(), scene.changes()) == ("new\n", ["void", "applied"])
    assert scene.file.stat().st_mode & 0o777 == 0o640


def test_a_file_that_took_its_place_is_not_written_again(scene: Scene) -> None:
    scene.die("after")
    inode = scene.file.stat().st_ino
    assert scene.work() == "succeeded"
    assert (scene.file.stat().st_ino, scene.changes()) == (inode, ["applied"])


def test_what_somebody_wrote_meanwhile_is_kept_until_a_person_approves(scene: Scene) -> None:
    scene.die("before")
    scene.file.write_text("mine\n")
    assert scene.work() == "held"
    (job,) = scene.engine.jobs(kinds=["write_file"])
    assert (job.json["reason"], scene.file.read_text()) == ("conflict", "mine\n")
    assert scene.changes() == ["conflict"]
    assert scene.engine.mission(scene.mission).status == "waiting"
    scene.engine.approve(job.id)
    assert scene.work() == "succeeded"
    assert (scene.file.read_text(), scene.changes()) == ("new\n", ["conflict", "applied"])
    assert scene.engine.mission(scene.mission).status == "completed"


@pytest.mark.parametrize("moment", ["exchanged", "back"])
def test_what_somebody_wrote_just_before_the_exchange_survives_a_death(scene: Scene, moment: str) -> None:
    scene.die(moment, str(scene.file))
    assert scene.file.read_text() == {"exchanged": "new\n", "back": "mine\n"}[moment]
    assert scene.work() == "held"
    assert (scene.file.read_text(), scene.changes()) == ("mine\n", ["conflict"])
    (job,) = scene.engine.jobs(kinds=["write_file"])
    scene.engine.approve(job.id)
    assert scene.work() == "succeeded"
    assert (scene.file.read_text(), scene.changes()) == ("new\n", ["conflict", "applied"])


def test_a_write_that_was_done_stays_done_whatever_became_of_the_file(scene: Scene, tmp_path: Path) -> None:
    scene.die("after")
    # Another mission takes the lock first and so closes the intent; then it writes the same file.
    other: dict[str, JsonValue] = {
        **SPEC,
        "planner": {"type": "script", "replies": [_write("theirs\n"), _done()]},
    }
    theirs = scene.engine.launch(other, root=scene.root)
    scene.engine.work(until_idle=True, mission_id=theirs.id)
    scene.engine.work(until_idle=True)
    states = {job.mission_id: job.state for job in scene.engine.jobs(kinds=["write_file"])}
    assert states == {scene.mission: "succeeded", theirs.id: "succeeded"}
    assert scene.changes() == ["applied"]
    assert scene.file.read_text() == "theirs\n"


def test_what_somebody_writes_just_before_the_rename_is_kept(scene: Scene) -> None:
    assert scene.meddle("work").returncode == 0
    (job,) = scene.engine.jobs(kinds=["write_file"])
    assert (job.state, job.json["reason"], scene.file.read_text()) == ("held", "conflict", "mine\n")
    assert scene.changes() == ["conflict"]
    scene.engine.approve(job.id)
    assert scene.work() == "succeeded"
    assert (scene.file.read_text(), scene.changes()) == ("new\n", ["conflict", "applied"])


def test_an_undo_keeps_what_somebody_writes_just_before_the_rename(scene: Scene) -> None:
    assert scene.work() == "succeeded"
    refused = scene.meddle("undo")
    assert "has been changed in the meantime and is left alone" in refused.stderr
    assert scene.file.read_text() == "mine\n"
    assert scene.changes() == ["applied", "conflict"]


def test_a_file_that_is_gone_meanwhile_is_a_conflict_too(scene: Scene) -> None:
    scene.die("before")
    scene.file.unlink()
    scene.engine.work(until_idle=True)
    (job,) = scene.engine.jobs(kinds=["write_file"])
    assert (job.state, job.json["reason"]) == ("held", "conflict")
    assert list(scene.root.iterdir()) == []


def _write(content: str) -> JsonValue:
    new_jobs: list[JsonValue] = [{"kind": "write_file", "params": {"rel_path": "a.txt", "content": content}}]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def _done() -> JsonValue:
    return {"ok": True, "action": "mission_complete", "summary": "done"}
