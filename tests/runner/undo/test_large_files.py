"""A content that is too large to keep is replaced only after a person was told that it cannot be undone."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.runner.undo.conftest import Scene

from lcp_engine import Engine, LcpError
from lcp_engine.workers.base import Caps

KEPT = 100
WRITE: dict[str, JsonValue] = {"ok": True, "action": "write_file", "rel_path": "a", "content": "new\n"}
ADD: JsonValue = {"ok": True, "action": "write_file", "rel_path": "a", "content": "new\n", "mode": "append"}
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


@pytest.fixture
def small(emptied_database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """Nothing above 100 bytes is kept, nothing above 200 is written."""
    root = tmp_path / "root"
    root.mkdir()
    with Engine(
        emptied_database_url, caps=Caps(write_bytes=2 * KEPT, preimage_bytes=KEPT), isolation="off"
    ) as engine:
        yield Scene(engine, root)


def held_write(scene: Scene, size: int, write: JsonValue = WRITE) -> tuple[int, int]:
    """A mission whose write of a file of `size` bytes is held, and the job."""
    (scene.root / "a").write_bytes(b"x" * size)
    mission = scene.launch([write, DONE])
    (job,) = scene.engine.jobs(mission_id=mission, states=["held"])
    assert f"the file has {size} bytes, above the {KEPT} that are kept" in str(job.reason)
    assert (scene.root / "a").read_bytes() == b"x" * size
    return mission, job.id


@pytest.mark.parametrize("size", [KEPT + 1, 2 * KEPT, 1000 * KEPT])
def test_a_write_that_could_not_be_undone_waits_for_a_person(small: Scene, size: int) -> None:
    mission, job = held_write(small, size)
    small.engine.approve(job)
    small.engine.work(until_idle=True)
    assert (small.root / "a").read_text() == "new\n"
    (change,) = small.engine.changes(mission)
    assert (change["has_pre_image"], change["size_before"]) == (False, size)
    with pytest.raises(LcpError, match="'a' cannot come back"):
        small.engine.undo(mission)
    assert (small.root / "a").read_text() == "new\n"


def test_what_is_added_to_such_a_file_waits_too(small: Scene) -> None:
    _, job = held_write(small, KEPT + 1, ADD)
    small.engine.approve(job)
    small.engine.work(until_idle=True)
    assert (small.root / "a").read_bytes() == b"x" * (KEPT + 1) + b"new\n"


def test_nothing_is_added_to_a_file_above_the_cap(small: Scene) -> None:
    (small.root / "a").write_bytes(b"x" * 1000)
    mission = small.launch([ADD, DONE])
    (job,) = small.engine.jobs(mission_id=mission, kinds=["write_file"])
    assert job.error is not None
    assert (job.state, job.error["error_code"]) == ("failed", "TOO_LARGE")


def test_a_file_that_became_large_is_checked_in_little_memory(small: Scene) -> None:
    mission, left = small.launch([WRITE, DONE]), small.launch([{**WRITE, "rel_path": "b"}, DONE])
    for name in ("a", "b"):
        os.truncate(small.root / name, 64 * 2**20)
    sql = f"UPDATE changes SET state = 'intent', closed_at = NULL WHERE mission_id = {left}"
    small.engine.instance.database.write(lambda tx: tx.plain(sql))
    tracemalloc.start()
    try:
        with pytest.raises(LcpError, match="has been changed since the last change"):
            small.engine.undo(mission)
        assert small.engine.undo(left).files == ()
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    assert [change["state"] for change in small.engine.changes(left)] == ["conflict"]


def test_binary_contents_up_to_the_cap_come_back(small: Scene) -> None:
    content = bytes(range(256))[:KEPT]
    (small.root / "a").write_bytes(content)
    small.engine.undo(small.launch([WRITE, DONE]))
    assert (small.root / "a").read_bytes() == content


def test_a_content_that_was_not_kept_once_is_kept_when_it_can_be(
    small: Scene, emptied_database_url: str
) -> None:
    _, job = held_write(small, KEPT + 1)
    small.engine.approve(job)
    small.engine.work(until_idle=True)
    with Engine(emptied_database_url, isolation="off") as roomy:
        again = Scene(roomy, small.root)
        (small.root / "a").write_bytes(b"x" * (KEPT + 1))
        roomy.undo(again.launch([WRITE, DONE]))
    assert (small.root / "a").read_bytes() == b"x" * (KEPT + 1)
