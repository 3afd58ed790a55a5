"""Directories are made once, shown in words, and removed by an undo only if they are empty (R5, R20)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.runner.conftest import Ground

from lcp_engine import Engine
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.features.reports.markdown import as_markdown

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
AUTO: list[JsonValue] = [{"do": "auto"}]
WITH_FILE: tuple[tuple[str, dict[str, JsonValue]], ...] = (
    ("make_directory", {"rel_path": "a"}),
    ("write_file", {"rel_path": "a/f", "content": "x"}),
)


class Scene:
    """A root, and the mission that was launched last."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine = engine
        self.root = root
        self.root.mkdir()
        self.mission = 0

    def request(self, *jobs: tuple[str, dict[str, JsonValue]], **more: JsonValue) -> int:
        """The first job of a mission that requests these."""
        asked: JsonValue = {
            "ok": True,
            "action": "create_followup_jobs",
            "new_jobs": [{"kind": kind, "params": params} for kind, params in jobs],
        }
        planner: JsonValue = {"type": "script", "replies": [asked, DONE]}
        self.mission = self.engine.launch({"goal": "Make.", "planner": planner, **more}, root=self.root).id
        self.work()
        return self.engine.jobs(mission_id=self.mission)[1].id

    def make(self, path: str, **more: JsonValue) -> int:
        return self.request(("make_directory", {"rel_path": path}), **more)

    def work(self, *approved: int) -> None:
        for job in approved:
            self.engine.approve(job, by="ada")
        self.engine.work(until_idle=True, mission_id=self.mission)

    def state(self, job: int) -> tuple[str, JsonValue]:
        """The state of a job, and the code of its error."""
        found = self.engine.job(job)
        return str(found.state), None if found.error is None else found.error["error_code"]

    def tree(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def scene(ground: Ground, tmp_path: Path) -> Iterator[Scene]:
    with Engine(ground.url, isolation=ground.isolation) as engine:
        yield Scene(engine, tmp_path / "root")
    assert check_database(ground.url) == []


def test_a_directory_is_held_shown_made_and_undone(scene: Scene) -> None:
    job = scene.make("docs/api")
    assert (scene.state(job)[0], scene.tree()) == ("held", [])
    (diff,) = scene.engine.diff(job)
    assert (diff.path, diff.note, diff.is_whole) == ("docs/api/", "a new directory", True)
    scene.work(job)
    assert (scene.state(job)[0], scene.tree()) == ("succeeded", ["docs", "docs/api"])
    assert scene.engine.job(job).json["result"] == {
        "ok": True,
        "action": "make_directory_result",
        "path": "docs/api",
        "created": True,
    }
    (change,) = scene.engine.changes(scene.mission)
    assert (change["path"], change["change"], change["state"]) == ("docs/api/", "created", "applied")
    facts = scene.engine.facts(scene.mission)
    assert "- `docs/api/` made (job 2)\n" in as_markdown(facts)
    assert scene.engine.mission(scene.mission).deliverables == []
    undone = scene.engine.undo(job_id=job)
    assert [file["change"] for file in undone.files] == ["removed"]
    assert scene.tree() == []
    assert undone.job_id is not None
    scene.engine.undo(job_id=undone.job_id)
    assert scene.tree() == ["docs", "docs/api"]


def test_a_directory_that_is_there_already_is_no_change(scene: Scene) -> None:
    (scene.root / "docs").mkdir()
    job = scene.make("docs")
    (diff,) = scene.engine.diff(job)
    assert diff.note == "the directory is there already; nothing changes"
    scene.work(job)
    result = scene.engine.job(job).json["result"]
    assert isinstance(result, dict)
    assert (scene.state(job)[0], result["created"]) == ("succeeded", False)
    assert scene.engine.changes(scene.mission) == []
    assert scene.engine.undo(scene.mission).files == ()
    assert scene.tree() == ["docs"]


def test_a_directory_that_was_made_since_the_approval_is_no_change(scene: Scene) -> None:
    job = scene.make("docs")
    scene.engine.approve(job, by="ada")
    (scene.root / "docs").mkdir()
    scene.work()
    assert scene.state(job)[0] == "succeeded"
    assert scene.engine.changes(scene.mission) == []


def test_a_directory_with_the_file_that_was_written_into_it_is_undone_as_a_whole(scene: Scene) -> None:
    scene.request(*WITH_FILE, policy=AUTO)
    assert scene.tree() == ["a", "a/f"]
    undone = scene.engine.undo(scene.mission)
    assert scene.tree() == []
    assert undone.job_id is not None
    scene.engine.undo(job_id=undone.job_id)
    assert scene.tree() == ["a", "a/f"]


def test_an_undo_leaves_a_directory_that_is_not_empty_and_says_so(scene: Scene) -> None:
    scene.request(*WITH_FILE, policy=AUTO)
    (scene.root / "a/own").write_text("mine\n")
    told = {str(file["path"]): file["change"] for file in scene.engine.undo(scene.mission).files}
    assert told == {"a/": "left", "a/f": "removed"}
    assert scene.tree() == ["a", "a/own"]
    (scene.root / "a/own").unlink()
    assert [file["change"] for file in scene.engine.undo(scene.mission).files] == ["removed"]
    assert scene.tree() == []


def test_an_undo_is_content_with_a_directory_that_is_gone(scene: Scene) -> None:
    scene.make("a/b", policy=AUTO)
    (scene.root / "a/b").rmdir()
    scene.engine.undo(scene.mission)
    assert scene.tree() == []


def test_an_undo_leaves_a_directory_that_somebody_writes_into(scene: Scene) -> None:
    job = scene.make("a", policy=AUTO)
    writer = os.open(scene.root / "a", os.O_RDONLY)
    fcntl.flock(writer, fcntl.LOCK_EX)
    assert [file["change"] for file in scene.engine.undo(job_id=job).files] == ["left"]
    os.close(writer)
    assert scene.tree() == ["a"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("file", "PATH_EXISTS"),
        ("file/below", "PATH_NOT_FOUND"),
        ("link", "PATH_DENIED"),
        ("link/below", "PATH_DENIED"),
        (".git/hooks", "PATH_DENIED"),
        ("../beside", "PATH_OUTSIDE_ROOT"),
    ],
)
def test_a_directory_that_is_refused_changes_nothing(scene: Scene, path: str, code: str) -> None:
    (scene.root / "file").write_text("x")
    (scene.root / "link").symlink_to("..")
    assert scene.state(scene.make(path, policy=AUTO)) in (("failed", code), ("rejected", code))
    assert scene.tree() == ["file", "link"]
    assert not (scene.root.parent / "beside").exists()
    assert not (scene.root.parent / "below").exists()


def test_rules_for_writes_are_about_directories(scene: Scene) -> None:
    rules: list[JsonValue] = [
        {"kinds": ["write_file"], "paths": ["docs/"], "do": "auto"},
        {"kinds": ["write_file"], "paths": ["kept/"], "do": "deny"},
    ]
    assert scene.state(scene.make("docs/api", policy=rules))[0] == "succeeded"
    assert scene.state(scene.make("kept/api", policy=rules)) == ("rejected", "PATH_DENIED")


def test_directories_beneath_each_other_are_made_in_any_order(scene: Scene) -> None:
    paths = ("a/b/c", "a", "a/b", "a/b/c/d", "d")
    params: list[dict[str, JsonValue]] = [{"rel_path": path} for path in paths]
    scene.request(*(("make_directory", given) for given in params), policy=AUTO)
    assert scene.tree() == ["a", "a/b", "a/b/c", "a/b/c/d", "d"]
    scene.engine.undo(scene.mission)
    assert scene.tree() == []


def test_a_mission_that_made_directories_is_replayed_and_forked(scene: Scene) -> None:
    scene.make("a/b", policy=AUTO)
    assert scene.engine.replay(scene.mission).is_same
    assert scene.engine.fork(scene.mission, turn=2).changed == ()
    (scene.root / "a/b").rmdir()
    (drift,) = scene.engine.fork(scene.mission, turn=2).changed
    assert (drift.path, drift.now) == ("a/b/", "gone")


def test_the_page_of_changes_knows_directories(scene: Scene) -> None:
    scene.make("a/b", policy=AUTO)
    (found,), total = scene.engine.changed_files(scene.mission, first=0, most=10)
    assert (found.diff.path, found.diff.note, str(found.disk), total) == (
        "a/b/",
        "a new directory",
        "as_written",
        1,
    )
    (scene.root / "a/b").rmdir()
    (found,), _ = scene.engine.changed_files(scene.mission, first=0, most=10)
    assert str(found.disk) == "gone"


@pytest.mark.skipif(os.getuid() != 0, reason="only root writes as another user")
def test_what_root_makes_belongs_to_the_owner_of_the_directory_that_it_is_in(scene: Scene) -> None:
    (scene.root / "roots").mkdir()
    (scene.root / "old").write_text("old\n")
    for path in (scene.root, scene.root / "old"):
        os.chown(path, 1234, 1235)
    scene.request(
        ("make_directory", {"rel_path": "a/b"}),
        ("write_file", {"rel_path": "c/d/f", "content": "x"}),
        ("write_file", {"rel_path": "f", "content": "x"}),
        ("write_file", {"rel_path": "roots/f", "content": "x"}),
        ("delete_file", {"rel_path": "old"}),
        policy=AUTO,
    )
    assert not (scene.root / "old").exists()

    def owners(*paths: str) -> set[tuple[int, int]]:
        return {(status.st_uid, status.st_gid) for status in ((scene.root / path).stat() for path in paths)}

    assert owners("a", "a/b", "c", "c/d", "c/d/f", "f") == {(1234, 1235)}
    assert owners("roots/f") == {(0, 0)}
    scene.engine.undo(mission_id=scene.mission)
    assert owners("old") == {(1234, 1235)}
