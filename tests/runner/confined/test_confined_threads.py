"""A path bug in what the runner or a command does itself cannot leave the root either.

The same bug is put into the code that opens paths, and the same is done twice: without isolation, where the bug is
real, and confined.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest
from pydantic import JsonValue
from tests.crash.test_left_open import Scene

from lcp_engine.api.engine import Engine
from lcp_engine.core.job_states import State
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import LocalFile, LockedFile, temporary_name
from lcp_engine.sandbox.file_access import ConfinedThreads, confined_threads
from lcp_engine.sandbox.locks import only
from lcp_engine.sandbox.root import Opened, Root, refusal
from lcp_engine.sandbox.system.landlock import Isolation

P = ParamSpec("P")
T = TypeVar("T")
WRITE: JsonValue = {"kind": "write_file", "params": {"rel_path": "d/f.txt", "content": "CANARY new\n"}}


@pytest.fixture
def path_bug(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Paths are joined and opened, wherever they lead."""

    def open_directory(root: Root, path: str) -> int:
        return os.open(f"{root.path}/{path}", os.O_RDONLY | os.O_DIRECTORY)

    def open_file(root: Root, path: str) -> Opened:
        try:
            descriptor = os.open(f"{root.path}/{path}", os.O_RDONLY)
        except OSError as error:
            raise refusal(error, path) from error
        return Opened(descriptor, os.fstat(descriptor).st_size, path)

    monkeypatch.setattr(Root, "open_directory", open_directory)
    monkeypatch.setattr(Root, "open_file", open_file)
    return monkeypatch


@pytest.fixture(params=[Isolation.OFF, Isolation.REQUIRE])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    mode: Isolation = request.param
    return mode


@pytest.fixture
def engine(tmp_path: Path, isolation: Isolation) -> Iterator[Engine]:
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", isolation=isolation) as opened:
        yield opened


def launch(engine: Engine, place: Path, *replies: JsonValue, **keys: JsonValue) -> int:
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    policy: JsonValue = [{"kinds": ["write_file"], "do": keys.pop("do", "auto")}]
    spec: dict[str, JsonValue] = {
        "name": "m", "goal": "g", "policy": policy, **keys, "planner": {"type": "script", "replies": [*replies, done]},
    }  # fmt: skip
    return engine.launch(spec, root=place).id


def ask(*jobs: JsonValue) -> JsonValue:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}


def write_and_move_out(engine: Engine, place: Path) -> int:
    """A mission that wrote d/f.txt; then its directory is moved out of the root, and a link to it stays."""
    (place / "d").mkdir()
    (place / "d" / "f.txt").write_text("old\n")
    mission = launch(engine, place, ask(WRITE))
    engine.work(until_idle=True)
    assert (place / "d" / "f.txt").read_text() == "CANARY new\n"
    move_out(place, "d")
    return mission


def move_out(place: Path, name: str) -> Path:
    moved = place.parent / "outside" / name
    (place / name).rename(moved)
    (place / name).symlink_to(moved)
    return moved


@pytest.mark.usefixtures("path_bug")
def test_an_undo_changes_nothing_outside(engine: Engine, place: Path, isolation: Isolation) -> None:
    mission = write_and_move_out(engine, place)
    file = place.parent / "outside" / "d" / "f.txt"
    if isolation is Isolation.OFF:
        engine.undo(mission_id=mission)
        assert file.read_text() == "old\n", "here the bug is real"
        return
    with pytest.raises(LcpError, match="denied by the file system"):
        engine.undo(mission_id=mission)
    assert file.read_text() == "CANARY new\n"


def test_an_undo_that_was_decided_changes_nothing_outside(
    engine: Engine, place: Path, isolation: Isolation, path_bug: pytest.MonkeyPatch
) -> None:
    """Its directory is moved between the decision and the deed."""
    mission = write_and_move_out(engine, place)
    file = place.parent / "outside" / "d" / "f.txt"
    (place / "d").unlink()
    file.parent.rename(place / "d")
    work = Engine.work
    path_bug.setattr("lcp_engine.runner.undo._carry_out", lambda instance, mission_id: None)
    with pytest.raises(LcpError, match="is queued"):
        engine.undo(mission_id=mission)
    move_out(place, "d")
    work(engine, until_idle=True)
    assert file.read_text() == ("old\n" if isolation is Isolation.OFF else "CANARY new\n")


def test_a_rescue_touches_nothing_outside(
    database_url: str, tmp_path: Path, isolation: Isolation, path_bug: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    with Engine(database_url) as engine:
        scene = Scene(engine, database_url, tmp_path / "root")
        scene.threads = confined_threads(isolation)
        scene.die_and_cancel("before")
        moved = move_out(tmp_path / "root", "sub")
        left = {path.name for path in moved.iterdir()}
        assert len(left) == 2
        assert scene.close() == (["void"] if isolation is Isolation.OFF else ["conflict"])
        kept = {path.name for path in moved.iterdir()}
        assert kept == ({"a.txt"} if isolation is Isolation.OFF else left)


@pytest.mark.usefixtures("path_bug")
def test_a_diff_shows_nothing_outside(engine: Engine, place: Path, isolation: Isolation) -> None:
    (place / "d").symlink_to(place.parent / "outside")
    job: JsonValue = {"kind": "write_file", "params": {"rel_path": "d/secret.txt", "content": "x\n"}}
    launch(engine, place, ask(job), do="hold")
    engine.work(until_idle=True)
    (held,) = engine.jobs(states=[State.HELD])
    shown = "".join(diff.text for diff in engine.diff(held.id))
    assert ("CANARY" in shown) is (isolation is Isolation.OFF)


@pytest.mark.usefixtures("path_bug")
def test_a_report_and_a_fork_learn_nothing_of_what_is_outside(
    engine: Engine, place: Path, isolation: Isolation
) -> None:
    mission = write_and_move_out(engine, place)
    (row,) = engine.facts(mission).files.rows
    forked = engine.fork(mission, turn=2)
    if isolation is Isolation.OFF:
        assert row.disk == "as_written", "here the bug is real"
        assert forked.changed == ()
    else:
        assert row.disk is None
        assert [str(ErrorCode.PATH_DENIED) in drift.now for drift in forked.changed] == [True]


def test_every_step_on_a_file_is_taken_in_the_confined_thread(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {name for name, step in vars(LockedFile).items() if callable(step) and not name.startswith("_")}
    assert steps
    threads: set[str] = set()
    for name in ("open", "stat", "rename", "unlink", "fsync", "rmdir", "mkdir"):
        monkeypatch.setattr(os, name, in_noted_thread(getattr(os, name), threads))
    with Root(place) as root, ConfinedThreads(active=True).access(root, writes=True) as files:
        threads.clear()
        with files.lock([(root, "new/f.txt")]) as locked:
            file = only(locked)
            assert isinstance(file, LocalFile)
            file.replace(b"data", temporary_name())
            assert file.replaced
            current = file.read(10)
            assert current is not None
            assert current.data == b"data"
            assert file.read_within(1) == len(b"data")
            file.mend(temporary_name(), None, None)
            file.sync()
            file.put(b"more", temporary_name())
            file.remove(temporary_name())
            assert file.digest() is None
        files.remove_empty(root, ["new"])
        assert threads == {"lcp-confined"}
    assert not (place / "new").exists()


def in_noted_thread(call: Callable[P, T], threads: set[str]) -> Callable[P, T]:
    def noted(*args: P.args, **kwargs: P.kwargs) -> T:
        threads.add(threading.current_thread().name)
        return call(*args, **kwargs)

    return noted


def test_only_the_confined_thread_is_bound(place: Path) -> None:
    secret = place.parent / "outside" / "secret.txt"
    threads = ConfinedThreads(active=True)
    with Root(place) as root:
        with pytest.raises(PermissionError):
            threads.read(root, secret.read_text)
        assert threads.read(root, (place / "a.txt").read_text) == "hello\n"
        with pytest.raises(PermissionError):
            threads.read(root, lambda: (place / "a.txt").write_text("x"))
    assert secret.read_text() == "CANARY\n"


HANGING = """
import sys, threading
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.sandbox.root import Root

begun = threading.Event()

def look():
    begun.set()
    threading.Event().wait()

root = Root(sys.argv[1])
threading.Thread(target=lambda: ConfinedThreads(active=True).read(root, look), daemon=True).start()
begun.wait()
"""


def test_a_look_that_hangs_does_not_keep_a_process_from_ending(place: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING, str(place)], timeout=30, check=False)
    assert ended.returncode == 0
