"""Checking and measuring a database, on both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine.api.engine import Engine
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.examination import check_database, faults_in, measure
from lcp_engine.store.changes import keep
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import find_version, opened
from lcp_engine.store.db.sqlite import BUSY_SECONDS
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.stats import overview
from lcp_engine.store.version import HEAD
from lcp_engine.workers.base import Caps


def _ask(kind: str, **params: JsonValue) -> JsonValue:
    job: JsonValue = {"kind": kind, "params": params}
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}


@pytest.fixture
def engine_url(database_url: str, tmp_path: Path) -> str:
    """A database in which a mission was held, answered, approved, failed, undone and forked."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.md").write_text("before\n")
    replies: list[JsonValue] = [
        _ask("ask_user", question="Which?", options=["this", "that"]),
        _ask("write_file", rel_path="a.md", content="after\n"),
        _ask("read_file", rel_path="missing.md"),
        _ask("write_file", rel_path="b.md", content="never\n"),
        {"ok": True, "action": "mission_complete", "summary": "done"},
    ]
    with Engine(database_url) as engine:
        mission = engine.launch({"goal": "x", "planner": {"type": "script", "replies": replies}}, root=root)
        engine.work(until_idle=True)
        (question,) = engine.jobs(mission_id=mission.id, states=["held"])
        engine.answer(question.id, "this", by="me")
        engine.work(until_idle=True)
        (write,) = engine.jobs(mission_id=mission.id, states=["held"])
        engine.approve(write.id, by="me")
        engine.work(until_idle=True)
        (write,) = engine.jobs(mission_id=mission.id, states=["held"])
        engine.reject(write.id, "no", by="me")
        engine.work(until_idle=True)
        assert engine.mission(mission.id).status == "completed"
        engine.undo(mission.id)
        planner = PlannerSpec.model_validate({"type": "script", "replies": replies})
        engine.fork(mission.id, turn=4, planner=planner)
        engine.work(until_idle=True)
    return database_url


def test_a_database_that_was_used_is_whole(engine_url: str) -> None:
    assert check_database(engine_url, kept_bytes=Caps.preimage_bytes) == []
    assert find_version(engine_url) == HEAD


WRITE = "(SELECT min(job_id) FROM changes)"
"""The job that wrote a file."""

FAILED = "(SELECT min(id) FROM jobs WHERE state = 'failed')"

DAMAGES = {
    "DELETE FROM events WHERE mission_id = 1 AND seq = 2": "events should be numbered 1 to",
    "DELETE FROM events WHERE mission_id = 2": "mission 2: it counts",
    "UPDATE missions SET events = events + 5": "events; there are",
    "UPDATE missions SET failed = 7": "it counts 7 failed jobs; there are",
    "UPDATE missions SET questions = 70": "it counts 70 questions; ",
    "UPDATE missions SET asking = 4711": "its asking is 4711; its mission has no such job",
    "UPDATE missions SET running_since = 1": "its running time should stop; it is counted",
    "UPDATE missions SET ended_at = NULL": "it is completed, so it should have the time of its end",
    "UPDATE missions SET status = 'waiting', ended_at = NULL, queued = 1": "it waits for a person, so no job of it",
    "UPDATE plans SET held = 3": "it counts 3 held jobs; there are 0",
    "UPDATE plans SET open = 2": "it counts 2 open jobs; there are 0",
    "UPDATE plans SET job_id = 4711": "its job_id is 4711; its mission has no such job",
    "UPDATE jobs SET plan_id = 4711": "its plan_id is 4711; its mission has no such plan",
    "UPDATE jobs SET parent_id = 4711": "its parent_id is 4711",
    "UPDATE turns SET plan_id = 4711": "turn 1: its plan_id is 4711",
    "UPDATE jobs SET state = 'cancelled' WHERE id = 1": "job 1: it is cancelled; its last event, ",
    "UPDATE jobs SET settled_seq = settled_seq + 1 WHERE id = 1": "job 1: event ",
    "UPDATE jobs SET attempt = 9 WHERE id = 1": "job 1: it counts 9 attempts; its events tell of 1",
    f"UPDATE jobs SET approved = 0 WHERE id = {WRITE}": "is approved from attempt 0 on; its events tell of 1",
    "UPDATE jobs SET ended_at = NULL WHERE id = 1": "job 1: it is succeeded, so it should have the time of its end",
    "UPDATE jobs SET result = NULL WHERE id = 1": "job 1: it is succeeded, so it should have a result",
    "UPDATE jobs SET held_until = 5 WHERE id = 1": "job 1: it is succeeded, so it should not expire",
    "INSERT INTO edges VALUES (1, 1, 'success')": "job 1: it has to follow job 1, which was made later",
    "INSERT INTO edges VALUES (4711, 1, 'success')": "job 1: it follows job 4711; its mission has no such job",
    f"INSERT INTO edges SELECT {FAILED}, id, 'success' FROM jobs WHERE kind = 'undo'": (
        ", which has to succeed before it, is failed"
    ),
    "INSERT INTO edges VALUES (1, 2, 'end')": "job 2: it waits for -1 jobs; by its edges it should wait for 0",
    "UPDATE jobs SET waits_for = 3 WHERE id = 2": "job 2: it waits for 3 jobs; no edge ends at it",
    "UPDATE jobs SET followers = 2 WHERE id = 1": "job 1: it has 2 followers; 0 edges begin at it",
    "UPDATE jobs SET state = 'queued', limited_by = 'kind:do' WHERE id = 1": (
        "job 1: it waits for a permit of kind:do; there is no such limit"
    ),
    "UPDATE jobs SET approved = 1 WHERE kind = 'undo'": "it is an undo, which belongs to no plan",
    "UPDATE runners SET alive_until = 1 WHERE id = 1; UPDATE jobs SET state = 'running', runner_id = 1 WHERE id = 1": (
        "job 1: its lease with runner 1 has ended; runners were there for "
    ),
    "UPDATE jobs SET state = 'running', runner_id = 99 WHERE id = 1": "job 1: it is running on attempt 1; it names no",
    "UPDATE jobs SET state = 'running' WHERE id = 1": "job 1: attempt 1 is under way and has ended as 'succeeded'",
    "UPDATE events SET event = 'approved' WHERE job_id = 1 AND event = 'queued'": "('approved') is its first",
    "UPDATE events SET job_id = 4711 WHERE job_id = 1": "job 4711: events tell of it; it is not there",
    "UPDATE events SET job_id = NULL WHERE job_id = 1": "job 1: it is succeeded; no event tells of it",
    "UPDATE attempts SET outcome = 'failed' WHERE job_id = 1": "ended with 'succeeded'; its row tells 'failed'",
    "DELETE FROM attempts WHERE job_id = 1": "job 1: attempt 1 ended with 'succeeded'; its row is not there",
    "UPDATE attempts SET attempt = 7 WHERE job_id = 1": "job 1: attempt 7 ended; only 1 were begun",
    "UPDATE attempts SET job_id = 4711 WHERE job_id = 1": "refers to a row of jobs that is not there",
    "UPDATE events SET mission_id = 4711 WHERE mission_id = 2": "refers to a row of missions that is not there",
    "UPDATE approvals SET attempt = 9": "approved it from attempt 9 on; it counts 1",
    "UPDATE approvals SET attempt = 2": "what me approved is stored for attempt 2; approvals of the job begin with 1",
    "UPDATE changes SET state = 'intent', closed_at = NULL": "so its intent to write ",
    "UPDATE changes SET closed_at = NULL": "it is applied, so it should have the time when it was closed",
    "UPDATE changes SET attempt = 5 WHERE undoes IS NULL": "it belongs to attempt 5 of job",
    "UPDATE changes SET undoes = NULL": "is a undo, so it should take back an earlier change",
    "UPDATE changes SET undoes = 4711 WHERE undoes IS NOT NULL": "its undoes is 4711",
    "UPDATE changes SET file = '/else' WHERE undoes IS NULL": "it takes back change 1 of '/else'",
    "UPDATE blobs SET size = 3": "it should have 3 bytes; what is stored has ",
    "UPDATE blobs SET data = (SELECT data FROM blobs ORDER BY sha256 LIMIT 1)": "what is stored has ",
    "UPDATE blobs SET data = substr(data, 1, 5)": "cannot be read: ",
    "UPDATE blobs SET data = substr(data, 1, 0)": "bytes should be kept, as all up to ",
}
"""What a damage is named as."""
UNREFERENCED = {
    "DELETE FROM blobs": "the content that it replaced (",
    "DELETE FROM missions WHERE id = 2": "refers to a row of missions that is not there",
    "UPDATE changes SET job_id = 4711": "its job_id is 4711",
}
"""Damages that PostgreSQL refuses by itself."""


class _TakenBackError(Exception):
    pass


def _named(database: Database, damage: str) -> list[str]:
    """What is wrong after a damage, which is then taken back."""
    found: list[str] = []

    def work(tx: Tx) -> None:
        if tx.is_sqlite:
            tx.plain("PRAGMA defer_foreign_keys = ON")
        for statement in damage.split("; "):
            tx.plain(statement)
        found.extend(faults_in(tx, Caps.preimage_bytes))
        raise _TakenBackError

    with pytest.raises(_TakenBackError):
        database.write(work)
    return found


def test_every_damage_is_named(engine_url: str) -> None:
    damages = DAMAGES | (UNREFERENCED if engine_url.startswith("sqlite") else {})
    with Engine(engine_url) as engine:
        database = engine.instance.database
        database.write(lambda tx: keep(tx, "no hash of it", b"x"))
        assert any("what is stored has" in fault for fault in database.read(faults_in))
        database.write(lambda tx: tx.plain("DELETE FROM blobs WHERE sha256 = 'no hash of it'"))
        found = {damage: _named(database, damage) for damage in damages}
    unnamed = [
        damage for damage, faults in found.items() if not any(damages[damage] in fault for fault in faults)
    ]
    assert {damage: found[damage] for damage in unnamed} == {}
    assert check_database(engine_url) == []


def test_every_table_is_measured(engine_url: str) -> None:
    found = {table.name: table for table in measure(engine_url)}
    # The fork has a copy of what was approved.
    assert (found["missions"].rows, found["approvals"].rows) == (2, 2)
    assert all(table.bytes for table in found.values())


def test_the_overview_counts_what_the_tables_hold(engine_url: str) -> None:
    with opened(engine_url, BUSY_SECONDS) as database:
        held = overview(database)
    rows = {table.name: table.rows for table in measure(engine_url)}
    assert (held.missions, sum(held.jobs.values())) == ({"completed": 1, "waiting": 1}, rows["jobs"])
    assert (held.contents, held.content_bytes) == (rows["blobs"], len("before\n" + "after\n"))
    assert (held.wal_bytes is not None) == engine_url.startswith("sqlite")


def test_an_empty_database_is_not_one_of_ours(new_database_url: str) -> None:
    with pytest.raises(LcpError) as refused:
        measure(new_database_url)
    assert refused.value.code in (ErrorCode.DATABASE_FAILED, ErrorCode.DATABASE_VERSION)
