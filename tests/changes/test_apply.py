"""What a command changed is applied as a whole, once, whatever is killed in between, and is taken back as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import TURN
from tests.crash.applying import AFTER, Theatre, launch, tree
from tests.runner.undo.conftest import Scene

from lcp_engine import Engine, LcpError
from lcp_engine.errors import ErrorCode

PROJECT = Path(__file__).resolve().parent.parent.parent
COMMAND = (sys.executable, "-m", "tests.crash.applying")


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    theatre = Theatre(tmp_path)
    theatre.furnish()
    return theatre


@pytest.fixture
def engine(theatre: Theatre, emptied_database_url: str) -> Iterator[Engine]:
    with theatre.engine(emptied_database_url) as engine:
        yield engine


def work(engine: Engine, theatre: Theatre) -> tuple[str, dict[str, JsonValue]]:
    """State and result, or error, of the job that applies it."""
    mission = launch(engine, theatre)
    engine.work(until_idle=True)
    (job,) = engine.jobs(mission_id=mission, kinds=["apply_it"])
    return job.state, job.result or job.error or {}


def test_all_that_a_command_changed_is_applied(engine: Engine, theatre: Theatre) -> None:
    state, result = work(engine, theatre)
    assert (state, result["errors"], result["note"]) == ("succeeded", [], {"exit": 0})
    assert tree(engine, theatre) == AFTER
    assert not theatre.kept.exists()


def test_it_is_undone_as_one_and_redone(engine: Engine, theatre: Theatre) -> None:
    before = tree(engine, theatre)
    work(engine, theatre)
    (job,) = engine.jobs(kinds=["apply_it"])
    undone = engine.undo(job_id=job.id)
    assert tree(engine, theatre) == before
    redone = engine.undo(job_id=undone.job_id)
    assert tree(engine, theatre) == AFTER
    engine.undo(job_id=redone.job_id)
    assert tree(engine, theatre) == before


def test_files_that_changed_meanwhile_are_all_named_and_nothing_is_done(
    engine: Engine, theatre: Theatre
) -> None:
    (theatre.root / "a").write_text("mine\n")
    (theatre.root / "b").chmod(0o600)
    before = tree(engine, theatre)
    state, error = work(engine, theatre)
    assert (state, error["error_code"]) == ("failed", "CONFLICT")
    assert "'a' has changed since" in str(error["user_message"])
    assert "'b' has changed since" in str(error["user_message"])
    assert (tree(engine, theatre), engine.changes(1)) == (before, [])


def test_a_file_where_a_directory_is_needed_is_a_conflict(engine: Engine, theatre: Theatre) -> None:
    (theatre.root / "new").write_text("a file\n")
    state, error = work(engine, theatre)
    assert (state, error["error_code"]) == ("failed", "CONFLICT")
    assert "new/large" in str(error["user_message"])


def test_what_the_source_has_lost_is_a_conflict(engine: Engine, theatre: Theatre) -> None:
    (theatre.source / "new" / "large").write_bytes(b"other\n")
    before = tree(engine, theatre)
    state, error = work(engine, theatre)
    assert (state, "is not as the command left it" in str(error["user_message"])) == ("failed", True)
    assert tree(engine, theatre) == before


def test_what_the_root_has_already_is_no_change(engine: Engine, theatre: Theatre) -> None:
    (theatre.root / "a").write_bytes(b"A\n")
    (theatre.root / "a").chmod(0o755)
    state, result = work(engine, theatre)
    assert (state, "a" in dict(result["states"] or {})) == ("succeeded", False)  # type: ignore[arg-type]
    assert tree(engine, theatre) == AFTER


def test_a_full_disk_changes_no_file(
    engine: Engine, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, before = os.fstatvfs, tree(engine, theatre)

    def full(descriptor: int) -> os.statvfs_result:
        return os.statvfs_result((*tuple(real(descriptor))[:3], 0, 0, *tuple(real(descriptor))[5:]))

    monkeypatch.setattr(os, "fstatvfs", full)
    state, error = work(engine, theatre)
    assert (state, "0 bytes free" in str(error["user_message"])) == ("failed", True)
    assert (tree(engine, theatre), engine.changes(1)) == (before, [])


def test_in_a_stage_it_is_merged_with_the_modes_and_undone(engine: Engine, theatre: Theatre) -> None:
    before = tree(engine, theatre)
    mission = launch(engine, theatre, stage=True)
    engine.work(until_idle=True)
    (merge,) = engine.jobs(mission_id=mission, kinds=["merge"])
    assert (merge.state, tree(engine, theatre)) == ("held", before)
    look = engine.look(merge.id)
    assert "b: its mode becomes 700 instead of 644" in "\n".join(
        f"{one.path}: {one.note}" for one in look.files
    )
    engine.approve(merge.id, shown=look.sight, by="ada")
    engine.work(until_idle=True)
    assert engine.mission(mission).status == "completed"
    assert tree(engine, theatre) == AFTER
    engine.undo(mission)
    assert tree(engine, theatre) == before


def test_a_changed_mode_is_no_reason_to_lose_it_on_undo(engine: Engine, theatre: Theatre) -> None:
    work(engine, theatre)
    (theatre.root / "b").chmod(0o711)
    (job,) = engine.jobs(kinds=["apply_it"])
    with pytest.raises(LcpError) as raised:
        engine.undo(job_id=job.id)
    assert raised.value.code is ErrorCode.CONFLICT
    assert (theatre.root / "b").stat().st_mode & 0o7777 == 0o711


def test_the_next_write_of_a_file_finishes_its_change_first(
    theatre: Theatre, emptied_database_url: str
) -> None:
    """The file is written in a confined process, if the kernel can confine it."""
    ended = subprocess.run(
        [*COMMAND, "die", emptied_database_url, str(theatre.directory)], cwd=PROJECT, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    with Engine(emptied_database_url) as engine:
        assert tree(engine, theatre)["a"] == (b"A\n", 0o640)
        Scene(engine, theatre.root).write(("a", "append", "more\n"))
        assert tree(engine, theatre)["a"] == (b"A\nmore\n", 0o755)


@pytest.mark.proof
def test_a_process_that_dies_at_any_point_leaves_all_or_nothing(tmp_path: Path, database_url: str) -> None:
    """Every 9th point, from one on that the commit chooses."""
    command = [*COMMAND, "kill", database_url, str(tmp_path), "--first", str(1 + TURN % 9), "--step", "9"]
    said = subprocess.run(command, cwd=PROJECT, check=False, capture_output=True, text=True)
    assert (said.returncode, said.stdout.splitlines()[1:]) == (0, []), said
    assert int(said.stdout) > 100
