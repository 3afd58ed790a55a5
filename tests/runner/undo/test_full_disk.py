"""An undo for which the disk has no room changes no file, whatever is killed in between."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults.places import Memory, no_mounts
from tests.loaded_python import Python
from tests.runner.undo.conftest import Scene

from lcp_engine import Engine, LcpError
from lcp_engine.errors import ErrorCode
from lcp_engine.sandbox.atomic_write import LocalFile

FULL = "No space left on device"
WRITES = (("a", "overwrite", "A\n"), ("new/g", "overwrite", "g\n"), ("sub/c", "overwrite", "C\n"))


def fill(patch: pytest.MonkeyPatch, times: int) -> list[str]:
    """Refuse the second file that is prepared, some times; those that were tried."""
    real, tried = LocalFile.prepare, list[str]()

    def full(file: LocalFile, *given: object, **named: object) -> bool:
        tried.append(file.path)
        if len(tried) % 2 == 0 and len(tried) <= 2 * times:
            raise LcpError(ErrorCode.FILE_SYSTEM, f"{file.path!r}: {FULL}")
        return real(file, *given, **named)  # type: ignore[arg-type]  # as it was called

    patch.setattr(LocalFile, "prepare", full)
    return tried


def test_an_undo_that_the_disk_refuses_changes_no_file(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    before = scene.tree()
    mission = scene.write(*WRITES)
    after = scene.tree()
    with monkeypatch.context() as patch:
        tried = fill(patch, 1000)
        with pytest.raises(LcpError, match=f"no file is changed; .*{FULL}") as refused:
            scene.engine.undo(mission)
    assert refused.value.code is ErrorCode.FILE_SYSTEM
    assert (len(tried), {*tried}) == (6, {"a", "sub/c"})
    assert scene.tree() == after, "nothing is left beside the files either"
    scene.engine.undo(mission)
    assert scene.tree() == before


@pytest.mark.proof
def test_an_undo_goes_on_when_the_disk_has_room(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    before = scene.tree()
    mission = scene.write(*WRITES)
    fill(monkeypatch, 2)
    done = scene.engine.undo(mission)
    assert scene.tree() == before
    scene.engine.undo(job_id=done.job_id)
    assert scene.tree() != before


@pytest.mark.proof
def test_room_is_looked_at_before_anything_is_written(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    mission = scene.write(*WRITES)
    tried = fill(monkeypatch, 0)
    real = os.fstatvfs

    def full(descriptor: int) -> os.statvfs_result:
        return os.statvfs_result((*tuple(real(descriptor))[:3], 0, 0, *tuple(real(descriptor))[5:]))

    monkeypatch.setattr(os, "fstatvfs", full)
    with pytest.raises(LcpError, match="0 bytes free, and the undo needs "):
        scene.engine.undo(mission)
    assert tried == []


DIES = """
import os, signal, sys
from lcp_engine import Engine
from lcp_engine.sandbox.atomic_write import LocalFile
real = LocalFile.prepare
def prepare(file, *given, **named):
    real(file, *given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
LocalFile.prepare = prepare
with Engine(sys.argv[1], isolation="off") as engine:
    engine.undo(int(sys.argv[2]))
"""


@pytest.mark.proof
@pytest.mark.skipif(no_mounts() is not None, reason=str(no_mounts()))
def test_an_undo_that_is_killed_on_a_disk_that_fills_changes_no_file(
    emptied_database_url: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        disk = Memory(tmp_path / "small", stack, 1024)
        root = disk.place / "root"
        root.mkdir()
        engine = stack.enter_context(Engine(emptied_database_url, isolation="off"))
        scene = Scene(engine, root)
        for name in ("a", "b"):
            (root / name).write_text(name * 100_000)
        before = scene.tree()
        mission = scene.write(("a", "overwrite", "A\n"), ("b", "overwrite", "B\n"))
        after = scene.tree()
        assert Python("-c", DIES, emptied_database_url, mission).wait() == -signal.SIGKILL
        disk.fill()
        engine.work(until_idle=True)
        (undo,) = engine.jobs(kinds=["undo"])
        error = undo.error
        assert error is not None
        assert "no file is changed" in str(error["user_message"])
        assert "bytes free, and the undo needs 200,000" in str(error["user_message"])
        assert scene.tree() == after
        disk.free()
        engine.undo(mission)
        assert scene.tree() == before
