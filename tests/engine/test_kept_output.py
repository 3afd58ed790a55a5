"""Ignored output of a command is there for the next one of its mission, but not without the source it is of."""

from __future__ import annotations

import pytest
from tests.engine.conftest import Lab
from tests.engine.test_run_command import ANY, AUTO, DONE, ask
from tests.wall.namespaces import NEEDS_WALL

pytestmark = NEEDS_WALL
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
