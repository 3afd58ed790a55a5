"""Large results are stored once, and everybody reads them as if they stood in their jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine.api.engine import Engine
from lcp_engine.features.check.store.examination import faults_in
from lcp_engine.features.upkeep.store.prune import prune
from lcp_engine.store.large_results import LARGE
from lcp_engine.store.queries.records import Job

CONTENT = "0123456789abcde\n" * LARGE
READ: JsonValue = {
    "ok": True,
    "action": "create_followup_jobs",
    "new_jobs": [
        {"name": "large", "kind": "read_file", "params": {"rel_path": "large.txt"}},
        {"name": "small", "kind": "read_file", "params": {"rel_path": "small.txt"}},
    ],
}
COMPLETE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "large.txt").write_text(CONTENT)
    (root / "small.txt").write_text("small")
    return root


@pytest.fixture
def engine(database_url: str, root: Path) -> Iterator[Engine]:
    """Two missions that have read the same file."""
    with Engine(database_url) as engine:
        for _ in range(2):
            engine.launch(
                {"goal": "x", "planner": {"type": "script", "replies": [READ, COMPLETE]}}, root=root
            )
            engine.work(until_idle=True)
        yield engine


def _read_jobs(engine: Engine, mission: int) -> dict[str, Job]:
    return {str(job.json["name"]): job for job in engine.jobs(mission_id=mission, kinds=["read_file"])}


def _stored(engine: Engine) -> list[int]:
    rows = engine.instance.database.read(lambda tx: tx.query_plain("SELECT size FROM results"))
    return [int(row[0]) for row in rows]


def test_a_large_result_is_stored_once_and_reads_as_before(engine: Engine) -> None:
    (size,) = _stored(engine)
    assert size > len(CONTENT)
    for mission in (1, 2):
        found = _read_jobs(engine, mission)
        assert (found["large"].result or {})["content"] == CONTENT
        assert (found["small"].result or {})["content"] == "small"
        assert engine.job(found["large"].id).json == found["large"].json
    assert engine.instance.database.read(faults_in) == []


def test_the_view_shows_a_large_result(engine: Engine) -> None:
    sql = "SELECT result FROM job_history WHERE name = 'large'"
    rows = engine.instance.database.read(lambda tx: tx.query_plain(sql))
    assert [json.loads(row[0])["content"] for row in rows] == [CONTENT, CONTENT]


def test_missions_with_large_results_are_replayed_and_forked(engine: Engine, root: Path) -> None:
    assert engine.replay(1).differences == ()
    (root / "large.txt").unlink()
    copy = engine.fork(1, turn=2).id
    assert (_read_jobs(engine, copy)["large"].result or {})["content"] == CONTENT
    assert len(_stored(engine)) == 1
    engine.work(until_idle=True)
    assert engine.mission(copy).status == "completed"
    assert engine.instance.database.read(faults_in) == []


def test_a_large_result_goes_with_the_last_job_that_has_it(engine: Engine, root: Path) -> None:
    database = engine.instance.database
    database.write(lambda tx: tx.plain("UPDATE missions SET ended_at = id"))
    assert prune(database, ended_before=2).contents == 0
    assert (_read_jobs(engine, 2)["large"].result or {})["content"] == CONTENT
    engine.launch({"goal": "x", "planner": {"type": "script", "replies": [COMPLETE]}}, root=root)
    engine.work(until_idle=True)
    assert prune(database, ended_before=3).contents == 1
    assert (_stored(engine), database.read(faults_in)) == ([], [])


def test_a_large_result_that_is_gone_or_changed_is_named(engine: Engine) -> None:
    database = engine.instance.database
    database.write(lambda tx: tx.plain("UPDATE results SET text = '{}'"))
    (fault,) = database.read(faults_in)
    assert fault.startswith("result ")
    database.write(lambda tx: tx.plain("DELETE FROM results"))
    faults = database.read(faults_in)
    assert [fault.split(":")[0] for fault in faults] == [
        f"job {_read_jobs(engine, mission)['large'].id}" for mission in (1, 2)
    ]
