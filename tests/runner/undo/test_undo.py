"""The changes of a mission are undone, all or none, and an undo can be undone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pydantic import JsonValue
from tests.runner.undo.conftest import Scene

from lcp_engine import Engine, LcpError
from lcp_engine.errors import ErrorCode

PATHS = ("a", "b", "sub/c", "sub/d", "new/e", "new/deep/f", "g")
MIXED = (
    ("a", "overwrite", "A\n"),
    ("a", "append", "more\n"),
    ("sub/c", "append", "tail\n"),
    ("new/deep/f", "overwrite", "f\n"),
    ("new/e", "overwrite", "e\n"),
)


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_writes_is_undone_and_redone_byte_for_byte(scene: Scene, seed: int) -> None:
    random, before = Random(seed), scene.tree()
    writes = [
        (random.choice(PATHS), random.choice(("overwrite", "append")), f"{n} {random.random()}\n")
        for n in range(random.randrange(1, 12))
    ]
    mission = scene.write(*writes)
    after = scene.tree()
    undone = scene.engine.undo(mission)
    assert scene.tree() == before
    redone = scene.engine.undo(job_id=undone.job_id)
    assert scene.tree() == after
    scene.engine.undo(job_id=redone.job_id)
    assert scene.tree() == before


def test_the_writes_of_one_job_are_undone_alone_newest_first(scene: Scene) -> None:
    mission = scene.write(("a", "overwrite", "A\n"), ("a", "append", "B\n"), ("g", "overwrite", "g\n"))
    _, second, third = scene.jobs(mission)
    scene.engine.undo(job_id=third)
    assert not (scene.root / "g").exists()
    scene.engine.undo(job_id=second)
    assert (scene.root / "a").read_text() == "A\n"
    assert scene.engine.mission(mission).deliverables == ["a"]
    scene.engine.undo(mission)
    assert (scene.root / "a").read_text() == "a\n"
    assert scene.engine.mission(mission).deliverables == []


def test_several_changes_of_a_file_go_back_in_one_step(scene: Scene) -> None:
    mission = scene.write(*MIXED)
    undone = scene.engine.undo(mission)
    assert [(file["path"], file["change"]) for file in undone.files] == [
        ("new/e", "removed"), ("new/deep/f", "removed"), ("sub/c", "changed"), ("a", "changed"),
    ]  # fmt: skip
    by = [change["undone_by"] for change in scene.engine.changes(mission) if change["undoes"] is None]
    assert by == [undone.job_id] * 5


def test_an_undo_of_what_was_shown_restores_that_or_nothing(scene: Scene) -> None:
    mission, before = scene.write(("a", "overwrite", "A\n"), ("g", "overwrite", "g\n")), scene.tree()
    shown = scene.engine.undo(mission, dry_run=True).shown
    assert shown == scene.engine.undo(mission, dry_run=True).shown
    assert [one.path for one in scene.engine.undo_diffs(mission, shown=shown)] == ["g", "a"]
    undone = scene.engine.undo(job_id=scene.jobs(mission)[1])
    for other in (shown, scene.engine.undo(job_id=scene.jobs(mission)[0], dry_run=True).shown, ""):
        with pytest.raises(LcpError, match="has changed since it was shown; nothing was restored"):
            scene.engine.undo(mission, shown=other)
    assert not (scene.root / "g").exists()
    scene.engine.undo(job_id=undone.job_id)
    assert scene.tree() == before
    done = scene.engine.undo(mission, shown=shown)
    assert done.job_id is not None
    assert scene.engine.finish_undo(done.job_id) == done
    with pytest.raises(LcpError, match="job 1 is not an undo"):
        scene.engine.finish_undo(1)


def test_an_undo_leaves_a_history_without_gaps(scene: Scene) -> None:
    mission = scene.write(*MIXED)
    undone = scene.engine.undo(mission)
    events = scene.engine.events(mission)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert undone.job_id is not None
    job = scene.engine.job(undone.job_id)
    assert (job.kind, job.state, job.json["turn"]) == ("undo", "succeeded", None)
    assert [event["event"] for event in scene.engine.events(mission, job_id=job.id)] == [
        "queued", "decided", "started", "succeeded",
    ]  # fmt: skip
    assert scene.engine.mission(mission).status == "completed"


def test_a_dry_run_changes_nothing_and_names_the_same_files(scene: Scene) -> None:
    mission = scene.write(*MIXED)
    tree, events = scene.tree(), scene.engine.events(mission)
    planned = scene.engine.undo(mission, dry_run=True)
    assert (scene.tree(), scene.engine.events(mission), planned.job_id) == (tree, events, None)
    assert scene.engine.undo(mission).files == planned.files


def test_what_is_undone_already_is_not_undone_twice(scene: Scene) -> None:
    mission = scene.write(*MIXED)
    scene.engine.undo(mission)
    again = scene.engine.undo(mission)
    assert (again.job_id, again.files) == (None, ())


def test_mode_bits_are_those_of_the_file(scene: Scene) -> None:
    mission = scene.write(("a", "overwrite", "A\n"), ("g", "overwrite", "#!/bin/sh\n"))
    (scene.root / "a").chmod(0o600)
    (scene.root / "g").chmod(0o755)
    undone = scene.engine.undo(mission)
    assert (scene.root / "a").stat().st_mode & 0o7777 == 0o600
    scene.engine.undo(job_id=undone.job_id)
    assert (scene.root / "g").stat().st_mode & 0o7777 == 0o755


def test_a_directory_that_holds_something_else_stays(scene: Scene) -> None:
    mission = scene.write(*MIXED)
    (scene.root / "new" / "mine").write_text("mine")
    scene.engine.undo(mission)
    assert [path.name for path in (scene.root / "new").iterdir()] == ["mine"]


def edit(file: Path) -> None:
    file.write_text("mine\n")


def remove(file: Path) -> None:
    file.unlink()


def link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/hostname")


def make_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def make_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def link_parent(file: Path) -> None:
    file.parent.rename(file.parent.parent / "elsewhere")
    file.parent.symlink_to("elsewhere")


@pytest.mark.parametrize("drift", [edit, remove, link, make_directory, make_fifo, link_parent])
def test_drift_refuses_the_whole_undo_and_names_every_file(
    scene: Scene, drift: Callable[[Path], None]
) -> None:
    mission = scene.write(("a", "overwrite", "A\n"), ("new/e", "overwrite", "e\n"), ("g", "overwrite", "g\n"))
    drift(scene.root / "new" / "e")
    (scene.root / "g").write_text("mine too\n")
    with pytest.raises(LcpError) as raised:
        scene.engine.undo(mission)
    assert raised.value.code is ErrorCode.CONFLICT
    assert sorted(map(str, _files(raised.value))) == ["g", "new/e"]
    assert "'new/e'" in str(raised.value)
    assert "'g'" in str(raised.value)
    assert (scene.root / "a").read_text() == "A\n"
    assert scene.engine.jobs(kinds=["undo"]) == []


def test_a_later_change_names_its_job_and_mission(scene: Scene) -> None:
    first = scene.write(("a", "overwrite", "A\n"), ("g", "overwrite", "g\n"))
    second = scene.write(("a", "append", "B\n"))
    (later,) = scene.jobs(second)
    with pytest.raises(
        LcpError, match=rf"'a' was changed since by job {later} of mission {second}$"
    ) as raised:
        scene.engine.undo(first)
    assert (raised.value.code, (scene.root / "g").exists()) == (ErrorCode.CONFLICT, True)
    with pytest.raises(LcpError, match=f"job {later} of mission {second}"):
        scene.engine.undo(job_id=scene.jobs(first)[0])
    scene.engine.undo(second)
    scene.engine.undo(first)
    assert (scene.root / "a").read_text() == "a\n"


def test_an_undo_cannot_be_undone_once_the_file_was_written_again(scene: Scene) -> None:
    undone = scene.engine.undo(scene.write(("a", "overwrite", "A\n")))
    second = scene.write(("a", "overwrite", "B\n"))
    with pytest.raises(LcpError, match=f"by job {scene.jobs(second)[0]} of mission {second}"):
        scene.engine.undo(job_id=undone.job_id)
    scene.engine.undo(second)
    scene.engine.undo(job_id=undone.job_id)
    assert (scene.root / "a").read_text() == "A\n"


def test_a_mission_with_queued_jobs_is_refused(scene: Scene) -> None:
    mission = scene.write(("a", "overwrite", "A\n"))
    scene.engine.enqueue("read_file", {"rel_path": "a"}, mission_id=mission)
    with pytest.raises(LcpError, match="it has 1 queued") as raised:
        scene.engine.undo(mission)
    assert raised.value.code is ErrorCode.WRONG_STATE
    assert (scene.root / "a").read_text() == "A\n"


def test_a_waiting_mission_is_undone_and_goes_on_waiting(scene: Scene) -> None:
    write: JsonValue = {"ok": True, "action": "write_file", "rel_path": "a", "content": "A\n"}
    ask: JsonValue = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "unheard_of", "params": {}}],
    }
    mission = scene.launch([write, ask])
    assert scene.engine.mission(mission).status == "waiting"
    scene.engine.undo(mission)
    assert ((scene.root / "a").read_text(), scene.engine.mission(mission).status) == ("a\n", "waiting")


def test_a_planner_cannot_ask_for_an_undo(scene: Scene) -> None:
    write: JsonValue = {"ok": True, "action": "write_file", "rel_path": "a", "content": "A\n"}
    asked: JsonValue = {"kind": "undo", "params": {"mission": 1}, "auto_dispatch": True}
    ask: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": [asked]}
    scene.launch([write, ask])
    (job,) = scene.engine.jobs(kinds=["undo"])
    assert (job.state, job.reason) == ("held", "no_worker")
    with pytest.raises(LcpError, match="no worker for it is installed"):
        scene.engine.approve(job.id)
    assert (scene.root / "a").read_text() == "A\n"


def test_no_worker_can_be_registered_for_the_kind(emptied_database_url: str) -> None:
    from lcp_engine.changes.undo import UNDO

    with pytest.raises(LcpError, match="the engine's own"):
        Engine(emptied_database_url, workers=[UNDO], isolation="off")


def test_nothing_to_name_is_an_error(scene: Scene) -> None:
    for given, code in (
        ({}, ErrorCode.INVALID_ARGUMENT),
        ({"mission_id": 1, "job_id": 1}, ErrorCode.INVALID_ARGUMENT),
        ({"mission_id": 99}, ErrorCode.NOT_FOUND),
        ({"job_id": 99}, ErrorCode.NOT_FOUND),
        ({"job_id": 2**70}, ErrorCode.NOT_FOUND),
        ({"mission_id": -1}, ErrorCode.NOT_FOUND),
    ):
        with pytest.raises(LcpError) as raised:
            scene.engine.undo(given.get("mission_id"), job_id=given.get("job_id"))
        assert raised.value.code is code


def _files(error: LcpError) -> list[object]:
    files = error.failed.details["files"]
    assert isinstance(files, list)
    return [*files]
