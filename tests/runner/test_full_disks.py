"""A disk that is full where commands work: one line of error names the place, nothing is left, and later ones run."""

from __future__ import annotations

import gc
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.walls import NEEDS_LANDLOCK, NEEDS_NAMESPACES, NEEDS_OVERLAY

from lcp_engine import Engine, Job
from lcp_engine.core.programs.walls import Step

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk"),
]
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "Done."}
COPIES = [
    pytest.param(Step.COPY, marks=NEEDS_NAMESPACES),
    pytest.param(Step.LANDLOCK, marks=NEEDS_LANDLOCK),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB, and 300 files."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=300", "small", str(place)], check=True)
    yield place
    gc.collect()  # what an engine had open
    subprocess.run(["umount", str(place)], check=True)


def run(place: Path, wall: Step, *scripts: str, **spec: JsonValue) -> list[Job]:
    """The commands of one mission."""
    replies: list[JsonValue] = [
        {
            "ok": True,
            "action": "create_followup_jobs",
            "new_jobs": [{"kind": "run_command", "params": {"command": ["sh", "-c", one]}}],
        }
        for one in scripts
    ]
    whole: dict[str, JsonValue] = {
        "goal": "Run.",
        "planner": {"type": "script", "replies": [*replies, DONE]},
        "commands": {"allow": [["sh", "-c", "*"]], "seconds": 60},
        "policy": [{"kinds": ["run_command"], "do": "auto"}],
        **spec,
    }
    with Engine(sqlite_url(place), commands_wall=[wall]) as engine:
        mission = engine.launch(whole, root=place / "root").id
        engine.work(until_idle=True)
        return engine.jobs(mission_id=mission, kinds=["run_command"])


def told(job: Job) -> tuple[str, str, str]:
    """The code of a job's error, what it says, and its advice."""
    assert job.error is not None, job.result
    advice = str(job.error["recommended_actions"])
    return str(job.error["error_code"]), str(job.error["user_message"]), advice


def test_a_disk_of_a_test_is_not_mounted_for_the_machine(disk: Path) -> None:
    """So nothing is left of it when the tests are killed."""
    assert disk.is_mount()
    assert str(disk) not in Path("/proc/1/mountinfo").read_text()


@pytest.mark.parametrize("wall", COPIES)
@pytest.mark.parametrize("fault", ["bytes", "files"])
def test_a_copy_that_the_disk_has_no_room_for_is_refused_and_removed(
    tmp_path: Path, disk: Path, wall: Step, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    (tmp_path / "root").mkdir()
    for number in range(1 if fault == "bytes" else 400):
        (tmp_path / "root" / str(number)).write_bytes(bytes(6_000_000 if fault == "bytes" else 0))
    (job,) = run(tmp_path, wall, "ls")
    code, message, advice = told(job)
    assert (code, message) == ("FILE_SYSTEM", f"'{disk}': No space left on device")
    assert "Free space on its disk." in advice
    assert [*disk.iterdir()] == []


@NEEDS_OVERLAY
@pytest.mark.parametrize("stage", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        "(for i in $(seq 400); do : >$i; done) 2>&1; true",
        "head -c 2500000 /dev/zero >big; head -c 9000000 /dev/zero >~/big; true",
    ],
)
def test_a_command_that_fills_the_disk_is_refused_and_the_next_one_runs(
    tmp_path: Path, disk: Path, stage: bool, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))
    root = tmp_path / "root"
    root.mkdir()
    (root / ".gitignore").write_text("out/\n")
    (root / "a.txt").write_text("a")
    full, later = run(
        tmp_path, Step.OVERLAY, script, "cat a.txt; ls",
        stage=stage, commands={"allow": [["sh", "-c", "*"]], "changes": "drop" if stage else "hold"},
    )  # fmt: skip
    code, message, advice = told(full)
    assert code == "FILE_SYSTEM"
    assert "No space left on device" in message or "bytes free" in message
    assert "\n" not in message
    assert "approve" not in advice
    assert later.result is not None
    assert later.result["stdout"] == "aa.txt\n"
    assert sorted(path.name for path in root.iterdir()) == [".gitignore", "a.txt"]
    assert [*disk.glob("**/runs/*"), *disk.glob("**/held/*")] == []


@NEEDS_OVERLAY
def test_a_command_whose_output_has_no_room_in_the_layer_succeeds_and_says_so(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))
    root = tmp_path / "root"
    root.mkdir()
    (root / ".gitignore").write_text("out/\n")
    full, later = run(tmp_path, Step.OVERLAY, "mkdir out; head -c 9000000 /dev/zero >out/big; true", "ls")
    assert full.result is not None
    assert later.result is not None
    left_out = str(full.result["left_out"])
    assert "ignored output: the directory of a mission's commands, " in left_out
    assert "cannot be used: No space left on device" in left_out
    assert len(full.attempts) == 1
    assert later.result["stdout"] == ""
