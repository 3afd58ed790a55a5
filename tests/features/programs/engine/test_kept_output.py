"""Ignored output of a command is there for the next one of its mission, but not without the source it is of."""

from __future__ import annotations

import pytest
from tests.engine.conftest import Lab
from tests.features.programs.engine.test_run_command import ANY, AUTO, DONE, ask
from tests.walls import NEEDS_OVERLAY

pytestmark = NEEDS_OVERLAY
BUILD = "test -e build/x && echo warm || { mkdir -p build; echo x > build/x; echo cold; }"


def said(lab: Lab, *scripts: str, stage: bool = False) -> list[str]:
    (lab.root / ".gitignore").write_text("build/\n")
    asked = [ask(["sh", "-c", script]) for script in scripts]
    mission = lab.run(*asked, DONE, commands=ANY, policy=[*AUTO], stage=stage)
    ran = (job for job in lab.jobs(mission.id) if job.kind == "run_command")
    return [str((job.result or {"stdout": job.error})["stdout"]).strip() for job in ran]


@pytest.mark.parametrize("stage", [False, True], ids=["root", "stage"])
def test_ignored_output_is_there_for_the_next_command(lab: Lab, *, stage: bool) -> None:
    assert said(lab, BUILD, BUILD, "rm build/x", BUILD, stage=stage) == ["cold", "warm", "", "cold"]
    assert not (lab.root / "build").exists()


def test_output_of_source_that_is_dropped_is_dropped(lab: Lab) -> None:
    both = "echo new > source; mkdir -p build; echo of-new > build/x"
    assert said(lab, both, "cat source build/x || echo neither") == ["", "neither"]


def test_output_of_source_that_a_stage_keeps_is_kept(lab: Lab) -> None:
    both = "echo new > source; mkdir -p build; echo of-new > build/x"
    assert said(lab, both, "cat source build/x", stage=True) == ["", "new\nof-new"]


def test_a_command_that_was_stopped_leaves_no_output(lab: Lab) -> None:
    commands = {**ANY, "seconds": 1}
    (lab.root / ".gitignore").write_text("build/\n")
    slow, look = ask(["sh", "-c", f"{BUILD}; sleep 60"]), ask(["sh", "-c", "ls -A"])
    mission = lab.run(slow, look, DONE, commands=commands, policy=[*AUTO])
    last = [job for job in lab.jobs(mission.id) if job.kind == "run_command"][-1]
    assert last.result is not None
    assert last.result["stdout"] == ".gitignore\n"


def test_a_stage_keeps_what_a_command_changes_but_no_setuid_program(lab: Lab) -> None:
    (lab.root / "old").write_text("old\n")
    (lab.root / "gone").write_text("gone\n")
    (lab.root / "kept.pem").write_text("secret\n")
    change = (
        "echo new > old; rm gone; mkdir d; echo x > d/f; chmod 4755 d/f; ln -s old link; echo mine > kept.pem"
    )
    mission = lab.run(ask(["sh", "-c", change]), DONE, commands=ANY, policy=[*AUTO], stage=True)
    ran, merge = lab.jobs(mission.id)
    assert ran.result is not None, ran.error
    left_out = {str(one).partition(":")[0] for one in list(ran.result["left_out"] or [])}  # type: ignore[arg-type]
    assert left_out == {"kept.pem", "link"}
    assert (lab.root / "old").read_text() == "old\n"
    lab.engine.approve(merge.id)
    lab.work()
    assert (lab.root / "old").read_text() == "new\n"
    assert not (lab.root / "gone").exists()
    assert (lab.root / "d" / "f").stat().st_mode & 0o7777 == 0o755
    assert (lab.root / "kept.pem").read_text() == "secret\n"
    lab.engine.undo(mission_id=mission.id)
    assert (lab.root / "old").read_text() == "old\n"
    assert (lab.root / "gone").read_text() == "gone\n"
    assert not (lab.root / "d").exists()


@pytest.mark.parametrize("stage", [False, True], ids=["root", "stage"])
def test_another_name_of_a_secret_is_not_there_either(lab: Lab, *, stage: bool) -> None:
    (lab.root / ".env").write_text("SECRET\n")
    (lab.root / "other").hardlink_to(lab.root / ".env")
    (lab.root / "link").symlink_to(".env")
    assert said(lab, "cat other link .env; ls -A", stage=stage) == [".gitignore\nlink"]
