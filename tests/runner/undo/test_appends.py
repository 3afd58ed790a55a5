"""Appends keep what they add, not the whole file each time; everything that reads a content before still can."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.runner.undo.conftest import Scene

from lcp_engine.features.check.store.examination import faults_in
from lcp_engine.features.upkeep.store.prune import levels_of, prune
from lcp_engine.store.changes import MOST_WHOLE, content

SIZE = 4 * MOST_WHOLE
LATER = 2**60
LINES = [f"line {number}\n" for number in range(12)]


@pytest.fixture
def large(scene: Scene) -> bytes:
    """The content of a file that does not become smaller when it is compressed."""
    text = "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789ABCDEF-+\n", k=SIZE))
    (scene.root / "log").write_text(text)
    return text.encode()


def append(scene: Scene, *lines: str) -> int:
    return scene.write(*(("log", "append", line) for line in lines))


def stored(scene: Scene) -> int:
    ((count,),) = scene.engine.instance.database.read(
        lambda tx: tx.query_plain("SELECT sum(length(data)) FROM blobs")
    )
    return int(count)


def test_appends_grow_the_database_by_what_they_add(scene: Scene, large: bytes) -> None:
    append(scene, LINES[0])
    first = stored(scene)
    mission = append(scene, *LINES[1:])
    assert stored(scene) - first < 100 * len(LINES)
    written = scene.engine.mission(mission).metrics["bytes_written"]
    assert isinstance(written, int)
    assert written < 200 * len(LINES)
    assert scene.engine.instance.database.read(faults_in) == []


def test_each_content_before_comes_back_whole(scene: Scene, large: bytes) -> None:
    mission = append(scene, *LINES)
    jobs = scene.jobs(mission)
    (diff,) = scene.engine.diff(jobs[5])
    assert [line for line in diff.lines if line.startswith("+l")] == ["+line 5"]
    for count in reversed(range(len(LINES))):
        scene.engine.undo(job_id=jobs[count])
        assert (scene.root / "log").read_bytes() == large + "".join(LINES[:count]).encode()
    assert scene.engine.instance.database.read(faults_in) == []


def test_an_undone_append_can_be_done_again(scene: Scene, large: bytes) -> None:
    mission = append(scene, *LINES)
    undone = scene.engine.undo(mission)
    assert (scene.root / "log").read_bytes() == large
    scene.engine.undo(job_id=undone.job_id)
    assert (scene.root / "log").read_bytes() == large + "".join(LINES).encode()


def test_a_mission_of_appends_replays(scene: Scene, large: bytes) -> None:
    mission = append(scene, *LINES)
    assert scene.engine.replay(mission).is_same


def test_what_others_are_stored_on_is_pruned_with_the_last_of_them(scene: Scene, large: bytes) -> None:
    append(scene, *LINES[:6])
    append(scene, *LINES[6:])
    scene.write()  # the newest mission stays
    database = scene.engine.instance.database
    done = prune(database, ended_before=LATER, preimages=True)
    assert (done.missions, done.contents) == (2, len(LINES))
    assert database.read(faults_in) == []


def test_what_a_mission_that_stays_is_stored_on_stays(scene: Scene, large: bytes) -> None:
    append(scene, *LINES[:6])
    last = append(scene, *LINES[6:])
    database = scene.engine.instance.database
    assert prune(database, ended_before=LATER, keep=1, preimages=True).contents == 0
    assert database.read(faults_in) == []
    scene.engine.undo(last)
    assert (scene.root / "log").read_bytes() == large + "".join(LINES[:6]).encode()


@pytest.mark.parametrize(
    ("going", "base_of", "levels"),
    [
        ("abc", {}, ["abc"]),
        ("abc", {"b": "a", "c": "b"}, ["c", "b", "a"]),
        ("ab", {"b": "a", "c": "b"}, []),
        ("abd", {"b": "a", "c": "b", "d": "a"}, ["d"]),
        ("abcde", {"b": "a", "c": "a", "d": "c"}, ["d", "bc", "ae"]),
    ],
)
def test_a_content_goes_after_those_that_are_stored_on_it(
    going: str, base_of: dict[str, str], levels: list[str]
) -> None:
    assert levels_of(going, base_of) == [[*level] for level in levels]


def test_a_base_that_is_gone_is_named(scene: Scene, large: bytes) -> None:
    append(scene, *LINES[:3])
    database = scene.engine.instance.database
    ((base,),) = database.read(
        lambda tx: tx.query_plain("SELECT sha256 FROM blobs WHERE base IS NULL AND size >= 16384")
    )
    nothing = "x''" if database.backend.name == "sqlite" else "''::bytea"
    database.write(lambda tx: tx.plain(f"UPDATE blobs SET data = {nothing} WHERE sha256 = '{base}'"))
    ((second,),) = database.read(lambda tx: tx.query_plain(f"SELECT sha256 FROM blobs WHERE base = '{base}'"))
    assert database.read(lambda tx: content(tx, second)) is None
    assert any(
        fault.startswith(f"content {second}: it follows the content {base}")
        for fault in database.read(faults_in)
    )


def test_a_short_file_is_stored_whole(scene: Scene) -> None:
    (scene.root / "log").write_text("short\n")
    append(scene, "a\n", "b\n")
    bases = scene.engine.instance.database.read(lambda tx: tx.query_plain("SELECT base FROM blobs"))
    assert {base for (base,) in bases} == {None}


def test_the_root_is_not_needed(scene: Scene, large: bytes, tmp_path: Path) -> None:
    """A content before is read from the database alone, wherever the root is."""
    mission = append(scene, *LINES)
    scene.root.rename(tmp_path / "elsewhere")
    shas = [str(change["sha256_before"]) for change in scene.engine.changes(mission)]
    kept = [scene.engine.instance.database.read(partial(content, sha=sha)) for sha in shas]
    assert kept == [large + "".join(LINES[:count]).encode() for count in range(len(LINES))]
