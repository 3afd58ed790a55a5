"""Deletions are held, shown, bound to what was shown, applied once and undone, like writes (R5, R20)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.runner.conftest import Ground

from lcp_engine import Engine
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.features.reports.markdown import as_markdown
from lcp_engine.workers.base import Caps

TEXT = "#!/bin/sh\necho old\n"


class Scene:
    """A root with one script, and the mission that was launched last."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine = engine
        self.file = root / "bin" / "old.sh"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(TEXT)
        self.file.chmod(0o750)
        self.mission = 0

    def hold(self, path: str = "bin/old.sh", **more: JsonValue) -> int:
        """The held job of a mission that requests a deletion."""
        jobs: list[JsonValue] = [{"kind": "delete_file", "params": {"rel_path": path}}]
        replies: list[JsonValue] = [
            {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs},
            {"ok": True, "action": "mission_complete", "summary": "done"},
        ]
        planner: JsonValue = {"type": "script", "replies": replies}
        spec: dict[str, JsonValue] = {"goal": "Delete.", "planner": planner, **more}
        self.mission = self.engine.launch(spec, root=self.file.parent.parent).id
        self.work()
        (job,) = self.engine.jobs(mission_id=self.mission, kinds=["delete_file"])
        return job.id

    def work(self, *approved: int) -> None:
        for job in approved:
            self.engine.approve(job, by="ada")
        self.engine.work(until_idle=True, mission_id=self.mission)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.file.parent.iterdir())

    def state(self, job: int) -> tuple[str, JsonValue]:
        """The state of a job, and the code of its error."""
        found = self.engine.job(job)
        return str(found.state), None if found.error is None else found.error["error_code"]


@pytest.fixture
def scene(ground: Ground, tmp_path: Path) -> Iterator[Scene]:
    with Engine(ground.url, isolation=ground.isolation) as engine:
        yield Scene(engine, tmp_path / "root")
    assert check_database(ground.url) == []


def test_a_deletion_is_held_shown_applied_and_undone_with_its_mode(scene: Scene) -> None:
    job = scene.hold()
    assert (scene.state(job)[0], scene.file.read_text()) == ("held", TEXT)
    (diff,) = scene.engine.diff(job)
    assert [line for line in diff.lines if line[:1] in "+-"] == [
        "--- a/bin/old.sh",
        "+++ /dev/null",
        "-#!/bin/sh",
        "-echo old",
    ]
    scene.work(job)
    assert scene.state(job)[0] == "succeeded"
    assert scene.names() == []
    (change,) = scene.engine.changes(scene.mission)
    assert (change["path"], change["state"], change["sha256_after"]) == ("bin/old.sh", "applied", None)
    (shown,) = scene.engine.mission_diff(scene.mission)
    assert shown.lines == diff.lines
    undone = scene.engine.undo(job_id=job)
    assert [(file["path"], file["change"]) for file in undone.files] == [("bin/old.sh", "created")]
    assert scene.file.read_text() == TEXT
    assert scene.file.stat().st_mode & 0o777 == 0o750
    assert undone.job_id is not None
    scene.engine.undo(job_id=undone.job_id)
    assert not scene.file.exists()


def test_a_file_that_changed_since_its_approval_is_kept(scene: Scene) -> None:
    job = scene.hold()
    scene.engine.diff(job)
    scene.engine.approve(job, by="ada")
    scene.file.write_text("newer\n")
    scene.work()
    assert (scene.state(job)[0], scene.file.read_text()) == ("held", "newer\n")
    scene.work(job)
    assert (scene.state(job)[0], scene.file.exists()) == ("succeeded", False)


def test_a_rule_for_writes_lets_nothing_be_deleted(scene: Scene) -> None:
    rules: list[JsonValue] = [{"kinds": ["write_file"], "do": "auto"}]
    assert scene.state(scene.hold(policy=rules))[0] == "held"
    rules = [{"kinds": ["write_file"], "paths": ["bin/"], "do": "deny"}, {"do": "auto"}]
    assert scene.state(scene.hold(policy=rules))[0] == "rejected"
    assert scene.file.exists()
    rules = [{"kinds": ["delete_file"], "paths": ["bin/"], "do": "auto"}]
    assert scene.state(scene.hold(policy=rules))[0] == "succeeded"
    assert not scene.file.exists()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("bin/none.sh", "PATH_NOT_FOUND"),
        ("nowhere/none.sh", "PATH_NOT_FOUND"),
        ("bin", "NOT_A_FILE"),
        ("bin/link", "PATH_DENIED"),
    ],
)
def test_what_is_no_file_is_not_deleted(scene: Scene, path: str, code: str) -> None:
    (scene.file.parent / "link").symlink_to("old.sh")
    job = scene.hold(path, policy=[{"kinds": ["delete_file"], "do": "auto"}])
    assert scene.state(job) == ("failed", code)
    assert scene.names() == ["link", "old.sh"]
    assert not (scene.file.parent.parent / "nowhere").exists()


@pytest.mark.parametrize("path", [".env", ".git/config", "../outside", "bin/"])
def test_what_is_denied_is_not_deleted(scene: Scene, path: str) -> None:
    root = scene.file.parent.parent
    (root / ".git").mkdir()
    for name in (".env", ".git/config", "../outside"):
        (root / name).write_text("kept\n")
    job = scene.hold(path, policy=[{"do": "auto"}])
    assert scene.state(job)[0] in ("failed", "rejected")
    assert [(root / name).read_text() for name in (".env", ".git/config", "../outside")] == ["kept\n"] * 3


def test_a_file_whose_content_is_not_kept_waits_for_a_person(
    emptied_database_url: str, tmp_path: Path
) -> None:
    with Engine(emptied_database_url, caps=Caps(preimage_bytes=10)) as engine:
        scene = Scene(engine, tmp_path / "root")
        job = scene.hold(policy=[{"kinds": ["delete_file"], "do": "auto"}])
        assert scene.state(job)[0] == "held"
        assert "could not be undone" in str(scene.engine.job(job).reason)
        scene.work(job)
        assert not scene.file.exists()


def test_deletions_of_one_directory_are_applied_together(emptied_database_url: str, tmp_path: Path) -> None:
    with Engine(emptied_database_url) as engine:
        scene = Scene(engine, tmp_path / "root")
        names = [f"bin/{number}.txt" for number in range(20)]
        for name in names:
            (scene.file.parent.parent / name).write_text(name)
        done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
        planner: JsonValue = {"type": "script", "replies": [done]}
        spec: dict[str, JsonValue] = {"goal": "Delete.", "planner": planner, "policy": [{"do": "auto"}]}
        mission = engine.launch(spec, root=scene.file.parent.parent).id
        jobs = [engine.enqueue("delete_file", {"rel_path": name}, mission_id=mission) for name in names]
        again = engine.enqueue("delete_file", {"rel_path": names[0]}, mission_id=mission)
        engine.work(until_idle=True, kinds=["delete_file"])
        assert {str(engine.job(job).state) for job in jobs} == {"succeeded"}
        assert scene.state(again) == ("failed", "PATH_NOT_FOUND")
        assert scene.names() == ["old.sh"]
        engine.work(until_idle=True, mission_id=mission)
        assert len(engine.undo(mission).files) == len(names)
        assert [(scene.file.parent.parent / name).read_text() for name in names] == names


def test_a_report_says_what_was_deleted(scene: Scene) -> None:
    scene.work(scene.hold())
    mission = scene.engine.mission(scene.mission)
    assert (mission.status, mission.deliverables) == ("completed", [])
    facts = scene.engine.facts(scene.mission)
    assert f"- `bin/old.sh` deleted (job {facts.files.rows[0].job_id})\n" in as_markdown(facts)
    scene.file.write_text("somebody's\n")
    now = as_markdown(scene.engine.facts(scene.mission))
    assert "deleted (job 2); changed since by someone else\n" in now
