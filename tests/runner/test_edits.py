"""Edits are held, shown, bound to what was shown, applied once and undone, like writes (R5, R20)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.runner.conftest import Ground

from lcp_engine import Engine
from lcp_engine.workers.base import Caps

TEXT = "".join(f"line {number}\n" for number in range(1, 6))


class Scene:
    """A root with one file, and the mission that was launched last."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine = engine
        self.file = root / "notes.txt"
        self.file.write_text(TEXT)
        self.mission = 0

    def hold(self, *edits: tuple[str, str]) -> list[int]:
        """The held jobs of a mission that requests edits; a `*` before the old text replaces it everywhere."""
        jobs: list[JsonValue] = [
            {
                "kind": "edit_file",
                "params": {
                    "rel_path": "notes.txt",
                    "old_text": old.removeprefix("*"),
                    "new_text": new,
                    "replace_all": old.startswith("*"),
                },
            }
            for old, new in edits
        ]
        replies: list[JsonValue] = [
            {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs},
            {"ok": True, "action": "mission_complete", "summary": "done"},
        ]
        limits: JsonValue = {"max_followups": len(jobs)}
        planner: JsonValue = {"type": "script", "replies": replies}
        spec: dict[str, JsonValue] = {"goal": "Edit.", "planner": planner, "limits": limits}
        self.mission = self.engine.launch(spec, root=self.file.parent).id
        self.work()
        held = self.engine.jobs(mission_id=self.mission, kinds=["edit_file"])
        assert {str(job.state) for job in held} == {"held"}
        return [job.id for job in held]

    def work(self, *approved: int) -> None:
        for job in approved:
            self.engine.approve(job, by="ada")
        self.engine.work(until_idle=True, mission_id=self.mission)

    def state(self, job: int) -> tuple[str, JsonValue]:
        """The state of a job, and the code of its error."""
        found = self.engine.job(job)
        return str(found.state), None if found.error is None else found.error["error_code"]


@pytest.fixture
def scene(ground: Ground, tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "root").mkdir()
    with Engine(ground.url, isolation=ground.isolation) as engine:
        yield Scene(engine, tmp_path / "root")


def test_an_edit_is_held_shown_applied_and_undone(scene: Scene) -> None:
    (job,) = scene.hold(("line 3\n", "line three\n"))
    assert scene.file.read_text() == TEXT
    (diff,) = scene.engine.diff(job)
    assert [line for line in diff.lines if line[:1] in "+-"][2:] == ["-line 3", "+line three"]
    scene.work(job)
    assert scene.file.read_text() == TEXT.replace("3", "three")
    (change,) = scene.engine.changes(scene.mission)
    assert (change["path"], change["state"]) == ("notes.txt", "applied")
    scene.engine.undo(job_id=job)
    assert scene.file.read_text() == TEXT


def test_an_edit_of_a_file_that_changed_since_its_approval_is_held_again(scene: Scene) -> None:
    (job,) = scene.hold(("line 3", "line three"))
    scene.engine.diff(job)
    scene.engine.approve(job, by="ada")
    changed = TEXT + "line 6\n"
    scene.file.write_text(changed)
    scene.work()
    assert (scene.state(job)[0], scene.file.read_text()) == ("held", changed)
    scene.work(job)
    assert scene.file.read_text() == changed.replace("3", "three")


def test_edits_of_one_file_follow_each_other(scene: Scene) -> None:
    edits = [(f"line {number}\n", f"line {number + 1}.\n") for number in range(1, 5)]
    jobs = scene.hold(*edits, ("*line", "Line"), ("Line 5\n", ""))
    for job in jobs:
        scene.work(job)
    assert [scene.state(job)[0] for job in jobs] == ["succeeded"] * len(jobs)
    assert scene.file.read_text() == "Line 2.\nLine 3.\nLine 4.\nLine 5.\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [("line", "5 times, beginning in lines 1, 2, 3, 4, 5"), ("Line 1", "no line of the file is like its first line")],
)  # fmt: skip
def test_an_edit_that_does_not_match_once_fails_and_changes_nothing(
    scene: Scene, old: str, said: str
) -> None:
    (job,) = scene.hold((old, "x"))
    (diff,) = scene.engine.diff(job)
    assert said in str(diff.note)
    scene.work(job)
    assert (scene.state(job), scene.file.read_text()) == (("failed", "NO_SINGLE_MATCH"), TEXT)
    assert said in str(scene.engine.job(job).error)


def test_an_edit_needs_a_file(scene: Scene) -> None:
    scene.file.unlink()
    (job,) = scene.hold(("line 1", "x"))
    scene.work(job)
    assert scene.state(job) == ("failed", "PATH_NOT_FOUND")
    assert not scene.file.exists()


def test_an_edit_of_a_file_above_the_cap_is_refused(emptied_database_url: str, tmp_path: Path) -> None:
    with Engine(emptied_database_url, caps=Caps(write_bytes=20)) as engine:
        scene = Scene(engine, tmp_path)
        (job,) = scene.hold(("line 1", "x"))
        scene.work(job)
        assert (scene.state(job), scene.file.read_text()) == (("failed", "TOO_LARGE"), TEXT)
