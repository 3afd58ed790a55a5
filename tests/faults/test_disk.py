"""The disk refuses: jobs fail with a clear message, files are old or new, and a retry does nothing twice (R20)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.sandbox.atomic_write import is_temporary

pytestmark = pytest.mark.proof

WRITE: dict[str, JsonValue] = {"rel_path": "a.txt", "content": "new\n", "mode": "append"}


class Disk:
    """Breaks calls of `os` on temporary files or directories, each a given number of times."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.calls = 0

    def break_call(self, name: str, code: int, times: int, *, of_directories: bool = False) -> None:
        real: Callable[..., int] = getattr(os, name)

        def broken(descriptor: int, *given: object) -> int:
            if self._is_meant(descriptor, of_directories):
                self.calls += 1
                if self.calls <= times:
                    raise OSError(code, os.strerror(code))
            return real(descriptor, *given)

        self._patch.setattr(os, name, broken)

    @staticmethod
    def _is_meant(descriptor: int, of_directories: bool) -> bool:
        if of_directories:
            return stat.S_ISDIR(os.fstat(descriptor).st_mode)
        return is_temporary(Path(f"/proc/self/fd/{descriptor}").readlink().name)


class Scene:
    """A job that appends to a file, on a disk that can be broken."""

    def __init__(self, engine: Engine, url: str, root: Path, disk: Disk) -> None:
        self.engine, self.url, self.root, self.disk = engine, url, root, disk
        (root / "a.txt").write_text("old\n")
        spec: dict[str, JsonValue] = {
            "name": "disk", "goal": "g", "planner": {"type": "script", "replies": []},
            "policy": [{"kinds": ["*"], "do": "auto"}],
        }  # fmt: skip
        self.mission = engine.launch(spec, root=root).id
        self.job = engine.enqueue("write_file", WRITE, mission_id=self.mission)

    def work(self) -> tuple[str, str, str]:
        """The job's state, what its error says, and the file."""
        self.engine.work(until_idle=True, kinds=["write_file"])
        assert check_database(self.url) == []
        assert [path.name for path in self.root.iterdir()] == ["a.txt"]
        job = self.engine.job(self.job).json
        error = job["error"]
        said = str(error["user_message"]) if isinstance(error, dict) else ""
        return str(job["state"]), said, (self.root / "a.txt").read_text()

    def effects(self) -> list[object]:
        return [change["state"] for change in self.engine.changes(self.mission)]


@pytest.fixture
def scene(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    root = tmp_path / "root"
    root.mkdir()
    with Engine(database_url, isolation="off") as engine:
        yield Scene(engine, database_url, root, Disk(monkeypatch))


@pytest.mark.parametrize(
    ("call", "code"), [("write", errno.ENOSPC), ("fsync", errno.EIO), ("write", errno.EDQUOT)]
)
def test_a_write_that_the_disk_always_refuses_fails_in_words_and_leaves_the_file(
    scene: Scene, call: str, code: int
) -> None:
    scene.disk.break_call(call, code, times=1000)
    assert scene.work() == ("failed", f"'a.txt': {os.strerror(code)}", "old\n")
    assert set(scene.effects()) == {"void"}


def test_a_write_on_a_read_only_file_system_is_denied_at_once(scene: Scene) -> None:
    scene.disk.break_call("write", errno.EROFS, times=1000)
    assert scene.work() == (
        "failed",
        f"'a.txt' is denied by the file system: {os.strerror(errno.EROFS)}",
        "old\n",
    )
    assert scene.disk.calls == 1


@pytest.mark.parametrize(("call", "code"), [("write", errno.ENOSPC), ("fsync", errno.EIO)])
def test_a_write_that_the_disk_refuses_once_is_done_once(scene: Scene, call: str, code: int) -> None:
    scene.disk.break_call(call, code, times=1)
    assert scene.work() == ("succeeded", "", "old\nnew\n")
    assert scene.effects() == ["void", "applied"]


def test_a_directory_that_was_not_synced_is_synced_by_the_retry_and_the_line_stands_once(
    scene: Scene,
) -> None:
    scene.disk.break_call("fsync", errno.EIO, times=1, of_directories=True)
    assert scene.work() == ("succeeded", "", "old\nnew\n")
    assert scene.effects() == ["applied"]
    assert scene.disk.calls == 2, "what was renamed is made durable before it counts as done"


def test_a_directory_that_is_never_synced_is_no_success(scene: Scene) -> None:
    scene.disk.break_call("fsync", errno.EIO, times=1000, of_directories=True)
    assert scene.work() == ("failed", f"'a.txt': {os.strerror(errno.EIO)}", "old\nnew\n")
    assert scene.effects() == ["applied"]
