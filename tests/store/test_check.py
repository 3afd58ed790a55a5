"""Checking and measuring a database, on both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine.api import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.check import check_database, find_version, measure
from lcp_engine.store.schema import HEAD


@pytest.fixture
def engine_url(database_url: str, tmp_path: Path) -> str:
    """A database in which one mission has ended."""
    replies: list[JsonValue] = [{"ok": True, "action": "mission_complete", "summary": "done"}]
    with Engine(database_url) as engine:
        engine.launch({"goal": "x", "planner": {"type": "script", "replies": replies}}, root=tmp_path)
        engine.work(until_idle=True)
    return database_url


def test_a_database_that_was_used_is_whole(engine_url: str) -> None:
    assert check_database(engine_url) == []
    assert find_version(engine_url) == HEAD


TAMPERING = {
    "DELETE FROM events WHERE seq = 2": "should be numbered 1 to",
    "UPDATE missions SET events = events + 5": "events; there are",
    "UPDATE missions SET failed = 7": "it counts 7 failed jobs; there are 0",
    "UPDATE plans SET held = 3": "it counts 3 held jobs; there are 0",
}


@pytest.mark.parametrize("sql", TAMPERING)
def test_every_counter_is_compared_with_what_it_counts(engine_url: str, sql: str) -> None:
    with Engine(engine_url) as engine:
        engine.site.database.write(lambda tx: tx.plain(sql))
    faults = check_database(engine_url)
    assert any(TAMPERING[sql] in fault for fault in faults), faults


def test_every_table_is_measured(engine_url: str) -> None:
    found = {table.name: table for table in measure(engine_url)}
    assert (found["missions"].rows, found["turns"].rows) == (1, 1)
    assert all(table.bytes for table in found.values())


def test_an_empty_database_is_not_one_of_ours(database_url: str) -> None:
    with pytest.raises(LcpError) as refused:
        measure(database_url)
    assert refused.value.code in (ErrorCode.DATABASE_FAILED, ErrorCode.DATABASE_VERSION)
