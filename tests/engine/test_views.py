"""The views and the engine's objects have exactly the fields that docs/interface.md promises."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from typing import TYPE_CHECKING

import pytest

from lcp_engine.core.job_states import State

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

MISSION = [
    "id", "uid", "name", "goal", "root", "planner", "status", "outcome", "summary", "deliverables", "metrics", "error",
    "limits", "turns", "jobs", "unfulfilled", "tokens", "created_at", "started_at", "ended_at", "session_id", "user_id",
    "result", "target_file", "issues", "recommendations", "cost", "waits_for", "open", "assessment",
]  # fmt: skip
JOB = [
    "id", "mission_id", "turn", "parent_id", "name", "kind", "params", "auto_dispatch", "state", "reason", "priority",
    "attempt", "max_attempts", "run_after", "created_at", "started_at", "ended_at", "limited_by", "result", "error",
    "attempts",
]  # fmt: skip
EVENT = ["seq", "mission_id", "job_id", "at", "event", "data"]
DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
WORK: Object = {
    "ok": True,
    "action": "create_followup_jobs",
    "new_jobs": [
        {"kind": "do", "name": "look", "params": {}, "auto_dispatch": True},
        {"kind": "fail", "params": {}},
        {"kind": "change", "params": {}},
        {"kind": "write_file", "params": {"rel_path": "a.md", "content": "x"}},
    ],
}


@pytest.fixture
def lived(lab: Lab) -> Lab:
    """A laboratory whose one mission has succeeded, failed, held and written."""
    lab.run(WORK, DONE, policy=[{"kinds": ["write_file"], "do": "auto"}])
    return lab


def test_the_engines_objects_have_exactly_the_promised_keys(lived: Lab) -> None:
    assert list(lived.mission().json) == MISSION
    for job in lived.engine.jobs():
        assert list(job.json) == JOB
    for event in lived.engine.events(1):
        assert sorted(event) == sorted(EVENT)


def test_the_objects_say_what_happened(lived: Lab) -> None:
    mission = lived.mission().json
    assert mission["jobs"] == {state.value: 0 for state in State} | {"succeeded": 4, "failed": 1, "held": 1}
    assert mission["tokens"] == {"input": 0, "output": 0}
    assert mission["deliverables"] == ["a.md"]
    assert str(mission["uid"]).startswith("req-")
    look, fail, change, _ = lived.jobs()
    assert (look.name, look.json["auto_dispatch"], look.json["turn"], look.json["parent_id"]) == (
        "look",
        True,
        1,
        1,
    )
    assert (change.json["auto_dispatch"], change.json["started_at"], change.attempts) == (None, None, [])
    assert fail.error is not None
    assert str(fail.error["error_id"]).startswith("err-")
    assert fail.error["request_id"] == mission["uid"]
    assert str(look.json["created_at"]).endswith("+00:00")


@pytest.mark.parametrize(
    ("view", "fields"),
    [
        ("mission_overview", MISSION),
        ("job_history", JOB),
        ("held_jobs", JOB),
        ("attempt_history", ["job_id", "attempt", "outcome", "runner_id", "error", "started_at", "ended_at"]),
        ("turn_history", ["mission_id", "number", "turn", "prompt", "reply", "action", "errors", "latency"]),
        ("change_history", ["mission_id", "job_id", "path", "state", "sha256_before", "sha256_after"]),
    ],
)
def test_a_view_is_read_with_plain_sql(lived: Lab, view: str, fields: list[str]) -> None:
    rows = read_with_a_plain_tool(lived.url, f"SELECT * FROM {view}")
    if fields in (MISSION, JOB):
        assert list(rows[0]) == fields
    assert set(fields) <= set(rows[0])


def read_with_a_plain_tool(url: str, sql: str) -> list[dict[str, object]]:
    """Rows by name, read by what has never heard of the engine."""
    if url.startswith("sqlite:///"):
        with sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True) as connection:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
        connection.close()
        return rows
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    wrapped = f"SELECT row_to_json(v) FROM ({sql}) v"
    told = subprocess.run(
        ["psql", "-X", "-A", "-t", url.replace("+psycopg", ""), "-c", wrapped],
        check=True,
        capture_output=True,
        text=True,
    )
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_json_in_a_view_is_json_and_counts_add_up(lived: Lab) -> None:
    (row,) = read_with_a_plain_tool(lived.url, "SELECT jobs, limits, metrics FROM mission_overview")
    assert json.loads(str(row["jobs"]))["held"] == 1
    assert json.loads(str(row["limits"]))["max_turns"] == 25
    assert json.loads(str(row["metrics"]))["files_written"] == 1
    (held,) = read_with_a_plain_tool(lived.url, "SELECT kind, state FROM held_jobs")
    assert held == {"kind": "change", "state": "held"}
