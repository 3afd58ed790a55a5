"""Moves are held, shown, bound to what was shown, applied once as a whole and undone as one (R5, R20)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.runner.conftest import Ground

from lcp_engine import Engine
from lcp_engine.errors import LcpError
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.features.reports.markdown import as_markdown
from lcp_engine.sandbox.locks import Wait, lock
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Caps
from lcp_engine.workers.move_file import WORKER

TEXT = "#!/bin/sh\necho old\n"
AUTO: list[JsonValue] = [{"kinds": ["move_file"], "do": "auto"}]
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


class Scene:
    """A root with one script, and the mission that was launched last."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine = engine
        self.root = root
        self.write("bin/old.sh", TEXT).chmod(0o750)
        self.mission = 0

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def request(self, new: str, old: str = "bin/old.sh", **more: JsonValue) -> int:
        """The job of a mission that requests a move."""
        jobs: list[JsonValue] = [{"kind": "move_file", "params": {"rel_path": old, "new_path": new}}]
        asked: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
        planner: JsonValue = {"type": "script", "replies": [asked, DONE]}
        spec: dict[str, JsonValue] = {"goal": "Move.", "planner": planner, **more}
        self.mission = self.engine.launch(spec, root=self.root).id
        self.work()
        (job,) = self.engine.jobs(mission_id=self.mission, kinds=["move_file"])
        return job.id

    def work(self, *approved: int) -> None:
        for job in approved:
            self.engine.approve(job, by="ada")
        self.engine.work(until_idle=True, mission_id=self.mission)

    def files(self) -> dict[str, str]:
        found = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(self.root)): path.read_text() for path in found}

    def state(self, job: int) -> tuple[str, JsonValue]:
        """The state of a job, and the code of its error."""
        found = self.engine.job(job)
        return str(found.state), None if found.error is None else found.error["error_code"]


@pytest.fixture
def scene(ground: Ground, tmp_path: Path) -> Iterator[Scene]:
    with Engine(ground.url, isolation=ground.isolation) as engine:
        yield Scene(engine, tmp_path / "root")
    assert check_database(ground.url) == []


def test_a_move_is_held_shown_applied_and_undone_as_one(scene: Scene) -> None:
    job = scene.request("tools/new/run.sh")
    assert (scene.state(job)[0], scene.files()) == ("held", {"bin/old.sh": TEXT})
    (diff,) = scene.engine.diff(job)
    assert (diff.path, diff.lines, diff.is_whole) == ("bin/old.sh", (), True)
    assert diff.note == "moved to 'tools/new/run.sh', as it is"
    scene.work(job)
    assert (scene.state(job)[0], scene.files()) == ("succeeded", {"tools/new/run.sh": TEXT})
    assert (scene.root / "tools/new/run.sh").stat().st_mode & 0o777 == 0o750
    undone = scene.engine.undo(job_id=job)
    assert {(file["path"], file["change"]) for file in undone.files} == {
        ("bin/old.sh", "created"),
        ("tools/new/run.sh", "removed"),
    }
    assert scene.files() == {"bin/old.sh": TEXT}
    assert not (scene.root / "tools").exists()
    assert (scene.root / "bin/old.sh").stat().st_mode & 0o777 == 0o750
    assert undone.job_id is not None
    scene.engine.undo(job_id=undone.job_id)
    assert scene.files() == {"tools/new/run.sh": TEXT}
    assert (scene.root / "tools/new/run.sh").stat().st_mode & 0o777 == 0o750


def test_both_ends_of_a_move_are_told_in_words(scene: Scene) -> None:
    scene.work(scene.request("run.sh"))
    new, old = scene.engine.changes(scene.mission)
    assert (new["path"], new["moved_from"], new["change"]) == ("run.sh", "bin/old.sh", "created")
    assert (old["path"], old["moved_to"], old["change"]) == ("bin/old.sh", "run.sh", "removed")
    told = {diff.path: diff.note for diff in scene.engine.mission_diff(scene.mission)}
    assert told == {
        "run.sh": "moved from 'bin/old.sh', as it was",
        "bin/old.sh": "moved to 'run.sh', as it was",
    }
    assert "`run.sh` created, 19 bytes (job 2)" in as_markdown(scene.engine.facts(scene.mission))
    assert scene.engine.mission(scene.mission).deliverables == ["run.sh"]


def test_a_moved_file_that_is_changed_again_shows_what_changed(scene: Scene) -> None:
    mission = scene.engine.launch(
        {"goal": "Move.", "planner": {"type": "script", "replies": [DONE]}, "policy": [{"do": "auto"}]},
        root=scene.root,
    ).id
    write = {"rel_path": "a.txt", "content": "one\ntwo\n"}
    scene.write("a.txt", "one\n")
    for kind, params in (
        ("write_file", write),
        ("move_file", {"rel_path": "a.txt", "new_path": "b.txt"}),
        ("edit_file", {"rel_path": "b.txt", "old_text": "one", "new_text": "1"}),
    ):
        scene.engine.enqueue(kind, params, mission_id=mission)
        scene.engine.work(until_idle=True, mission_id=mission)
    old, new = scene.engine.mission_diff(mission)
    assert (old.path, old.note, old.added, old.removed) == ("a.txt", "moved to 'b.txt'", 1, 0)
    assert (new.path, new.note, new.added, new.removed) == ("b.txt", "moved from 'a.txt'", 1, 1)
    scene.engine.undo(mission)
    assert scene.files() == {"a.txt": "one\n", "bin/old.sh": TEXT}


def test_a_file_that_changed_since_its_approval_is_not_moved(scene: Scene) -> None:
    job = scene.request("run.sh")
    scene.engine.diff(job)
    scene.engine.approve(job, by="ada")
    scene.write("bin/old.sh", "newer\n")
    scene.work()
    assert (scene.state(job)[0], scene.files()) == ("held", {"bin/old.sh": "newer\n"})
    scene.work(job)
    assert (scene.state(job)[0], scene.files()) == ("succeeded", {"run.sh": "newer\n"})


@pytest.mark.parametrize("kind", ["read_file", "write_file", "delete_file", "move_file"])
@pytest.mark.parametrize("path", ["bin/old.sh", "run.sh"])
def test_a_rule_that_denies_a_part_of_a_move_denies_it(scene: Scene, kind: str, path: str) -> None:
    rules: list[JsonValue] = [{"kinds": [kind], "paths": [path], "do": "deny"}, *AUTO]
    assert scene.state(scene.request("run.sh", policy=rules)) == ("rejected", "PATH_DENIED")
    assert scene.files() == {"bin/old.sh": TEXT}


def test_rules_for_writing_and_deleting_move_nothing(scene: Scene) -> None:
    rules: list[JsonValue] = [{"kinds": ["read_file", "write_file", "delete_file"], "do": "auto"}]
    assert scene.state(scene.request("run.sh", policy=rules))[0] == "held"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("bin/none.sh", "made/none.sh", "PATH_NOT_FOUND"),
        ("nowhere/none.sh", "made/none.sh", "PATH_NOT_FOUND"),
        ("bin", "made/bin", "NOT_A_FILE"),
        ("bin/old.sh", "bin", "NOT_A_FILE"),
        ("bin/old.sh", "bin/other.sh", "PATH_EXISTS"),
        ("bin/old.sh", "bin/empty", "PATH_EXISTS"),
        ("bin/old.sh", "./bin/../bin/old.sh", "INVALID_PARAMS"),
        ("bin/old.sh", "bin/old.sh/below", "PATH_NOT_FOUND"),
        ("bin/old.sh", "bin/link", "PATH_DENIED"),
        ("bin/link", "made/link", "PATH_DENIED"),
        ("bin/old.sh", "out/run.sh", "PATH_DENIED"),
        ("bin/old.sh", "made/.env", "PATH_DENIED"),
        (".env", "made/env", "PATH_DENIED"),
        ("bin/old.sh", ".git/hooks/pre-commit", "PATH_DENIED"),
        ("bin/old.sh", "../run.sh", "PATH_OUTSIDE_ROOT"),
    ],
)
def test_a_move_that_is_refused_changes_nothing(scene: Scene, old: str, new: str, code: str) -> None:
    scene.write("bin/other.sh", "other\n")
    scene.write("bin/empty", "")
    scene.write(".env", "kept\n")
    (scene.root / "bin/link").symlink_to("old.sh")
    (scene.root / "out").symlink_to("..")
    before = scene.files()
    job = scene.request(new, old, policy=[{"do": "auto"}])
    assert scene.state(job) in (("failed", code), ("rejected", code))
    assert scene.files() == before
    assert not (scene.root / "made").exists()
    assert not (scene.root.parent / "run.sh").exists()


def test_a_held_move_over_a_file_says_that_it_would_fail(scene: Scene) -> None:
    scene.write("bin/other.sh", "other\n")
    (diff,) = scene.engine.diff(scene.request("bin/other.sh"))
    assert diff.note == (
        "would not be written: 'bin/other.sh' is there already; 'bin/old.sh' is not moved over it"
    )


def test_a_change_of_case_alone_renames_the_file(scene: Scene) -> None:
    assert scene.state(scene.request("bin/OLD.sh", policy=AUTO))[0] == "succeeded"
    assert scene.files() == {"bin/OLD.sh": TEXT}


def test_a_file_whose_content_is_not_kept_waits_for_a_person(
    emptied_database_url: str, tmp_path: Path
) -> None:
    with Engine(emptied_database_url, caps=Caps(preimage_bytes=10)) as engine:
        scene = Scene(engine, tmp_path / "root")
        job = scene.request("run.sh", policy=AUTO)
        assert "could not be undone" in str(scene.engine.job(job).reason)
        scene.work(job)
        assert scene.files() == {"run.sh": TEXT}


def test_a_file_above_the_cap_is_not_moved(emptied_database_url: str, tmp_path: Path) -> None:
    with Engine(emptied_database_url, caps=Caps(write_bytes=10)) as engine:
        scene = Scene(engine, tmp_path / "root")
        assert scene.state(scene.request("run.sh", policy=AUTO)) == ("failed", "TOO_LARGE")
        assert scene.files() == {"bin/old.sh": TEXT}


def test_moves_in_opposite_directions_all_happen(emptied_database_url: str, tmp_path: Path) -> None:
    with Engine(emptied_database_url) as engine:
        scene = Scene(engine, tmp_path / "root")
        spec: dict[str, JsonValue] = {
            "goal": "Move.",
            "planner": {"type": "script", "replies": [DONE]},
            "policy": [{"do": "auto"}],
        }
        missions = [engine.launch(spec, root=scene.root).id for _ in range(2)]
        for number in range(20):
            for side, mission in enumerate(missions):
                here, there = ("ab", "ba")[side]
                scene.write(f"{here}/{side}{number}", f"{side}{number}")
                move = {"rel_path": f"{here}/{side}{number}", "new_path": f"{there}/{side}{number}"}
                engine.enqueue("move_file", move, mission_id=mission)
        engine.work(until_idle=True, threads=4)
        assert {str(job.state) for job in engine.jobs(kinds=["move_file"], limit=100)} == {"succeeded"}
        moved = {f"b/0{number}": f"0{number}" for number in range(20)}
        moved |= {f"a/1{number}": f"1{number}" for number in range(20)}
        assert scene.files() == {"bin/old.sh": TEXT, **moved}


def test_a_move_waits_for_both_directories(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    held = os.open(tmp_path / "b", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with Root(tmp_path) as root:
        paths = [(root, "a/f"), (root, "b/f")]
        with lock([*paths, (root, "a/g")], Wait.SHORTLY, together=2) as locked:
            assert locked.found == [None, None, None]
        os.close(held)
        with lock(paths, Wait.SHORTLY, together=2) as locked:
            assert None not in locked.found


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rel_path": "a"}, "move_file needs new_path; it is missing"),
        ({"rel_path": "a", "to": "b"}, "new_path is missing; did you mean it by to?"),
        ({"rel_path": "a", "destination": "b"}, "new_path is missing; did you mean it by destination?"),
        ({"source": "a", "new_path": "b"}, "unknown"),
        ({"rel_path": "a", "new_path": "a"}, "new_path is where the file is already; nothing would change"),
        ({"rel_path": "a", "new_path": "b\n"}, "holds the control character U+000A"),
        ({"rel_path": "a", "new_path": ""}, "new_path is not empty"),
    ],
)
def test_params_of_a_move_that_are_wrong_are_named(params: dict[str, JsonValue], message: str) -> None:
    with pytest.raises(LcpError) as refused:
        WORKER.read(params)
    assert message in str(refused.value.failed.details)


def test_a_mission_that_moved_files_is_replayed_and_forked(scene: Scene) -> None:
    scene.request("run.sh", policy=AUTO)
    assert scene.engine.replay(scene.mission).is_same
    assert scene.engine.fork(scene.mission, turn=2).changed == ()
    scene.write("bin/old.sh", "there again\n")
    (drift,) = scene.engine.fork(scene.mission, turn=2).changed
    assert (drift.path, drift.now) == ("bin/old.sh", "new")
