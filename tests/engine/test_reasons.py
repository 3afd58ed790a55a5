"""Codes decide, sentences explain: rewording every sentence changes nothing but the sentences (R23)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic import command
from pydantic import JsonValue
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from lcp_engine.cli.console.exits import exit_of_mission
from lcp_engine.core import reasons
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.errors import ErrorCode
from lcp_engine.store.db.create import migration_config
from lcp_engine.store.schema import VIEWS

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab


DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
WRITE: Object = {"ok": True, "action": "write_file", "rel_path": "large", "content": "new\n"}
LARGE = 11 * 1024 * 1024
"""Bytes: more than is kept of a file that is replaced."""
POLICY: JsonValue = [
    {"kinds": ["change"], "do": "deny"},
    {"kinds": ["fail"], "do": "hold"},
    {"kinds": ["write_file"], "do": "auto"},
]
_ADDED = ("code", "about", "failed_checks")
"""What version 0009 added to the data of events."""


def jobs(*kinds: str, **more: JsonValue) -> Object:
    new_jobs: list[JsonValue] = [{"kind": kind, "params": {"of": n}, **more} for n, kind in enumerate(kinds)]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def play(lab: Lab) -> list[int]:
    """Missions with every kind of reason; their ids."""
    return [_gated(lab), _overwritten(lab), _accepted(lab), _relayed(lab), _cancelled(lab), _limited(lab)]


def _gated(lab: Lab) -> int:
    asked = jobs("do", "change", "fail", "system", "admin", "unknown", "do")
    reviewed = jobs("do", "do", auto_dispatch=False)
    limits: Object = {"max_followups": 6, "overflow": "hold", "max_jobs": 7}
    mission = lab.run(asked, reviewed, DONE, policy=POLICY, limits=limits).id
    held = [job for job in lab.jobs(mission) if job.state == "held"]
    lab.engine.reject(held[0].id, "cancelled by the mission reached max_seconds")
    lab.work()
    lab.engine.cancel(mission, by="bob")
    return mission


def _overwritten(lab: Lab) -> int:
    """A write that cannot be undone is held, and runs once it was approved."""
    file = lab.root / "large"
    file.write_bytes(b"")
    os.truncate(file, LARGE)
    mission = lab.run(WRITE, DONE, policy=POLICY).id
    (job,) = lab.jobs(mission)
    assert (job.state, file.stat().st_size) == ("held", LARGE)
    lab.engine.approve(job.id)
    lab.work()
    assert file.read_text() == "new\n"
    return mission


def _accepted(lab: Lab) -> int:
    accept: JsonValue = [{"file_exists": "a.md"}, {"file_exists": "b.md"}, {"verify": "Is it good?"}]
    (lab.root / "b.md").write_text("b")
    mission = lab.run(*[DONE] * 4, accept=accept).id
    (question,) = [job for job in lab.jobs(mission) if job.state == "held"]
    options = question.params["options"]
    assert isinstance(options, list)
    lab.engine.answer(question.id, str(options[0]))
    lab.work()
    return mission


def _relayed(lab: Lab) -> int:
    mission = lab.engine.launch({"goal": "Find out.", "planner": "human"}, root=lab.root).id
    lab.work()
    (turn,) = [job.id for job in lab.engine.jobs(mission_id=mission, states=["held"])]
    assert turn in lab.engine.awaited_replies()
    lab.engine.answer(turn, json.dumps(DONE))
    lab.work()
    return mission


def _cancelled(lab: Lab) -> int:
    mission = lab.run(jobs("change", "system"), DONE).id
    lab.engine.cancel(mission, by="ann")
    return mission


def _limited(lab: Lab) -> int:
    plans: list[JsonValue] = [
        {"kind": "agent_plan", "params": {"user_prompt": prompt, "scope": "step"}}
        for prompt in ("more", "else")
    ]
    asked: Object = {"ok": True, "action": "create_followup_jobs", "new_jobs": plans}
    return lab.run(asked, DONE, DONE, limits={"max_turns": 1}).id


def outcome(lab: Lab, missions: list[int]) -> list[JsonValue]:
    """What came of missions, without ids and without a sentence."""
    found: list[JsonValue] = []
    for mission_id in missions:
        mission = lab.mission(mission_id)
        first = lab.engine.jobs(mission_id=mission_id)[0].id
        found.append([mission.status, mission.outcome, int(exit_of_mission(lab.engine, mission))])
        for job in lab.engine.jobs(mission_id=mission_id):
            error = job.error["error_code"] if job.error else None
            explained = lab.engine.explain_policy(job.id)
            gates = [[gate["gate"], gate["verdict"]] for gate in _objects(explained["gates"])]
            found.append([job.id - first, job.kind, job.state, error, explained["verdict"], list(gates)])
        found += [[event["event"], _code(event["data"])] for event in lab.engine.events(mission_id)]
    return found


def differences(lab: Lab, missions: list[int]) -> list[list[str]]:
    """What a replay finds: of a write that cannot be undone the content before is not known, otherwise nothing."""
    found = [[str(one) for one in lab.engine.replay(mission).differences] for mission in missions]
    assert [one for index, one in enumerate(found) if one and index != 1] == []
    return found


def _objects(value: JsonValue) -> list[Object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _code(data: JsonValue) -> JsonValue:
    return data.get("code") if isinstance(data, dict) else None


def texts(lab: Lab, missions: list[int]) -> list[str]:
    """The reasons of jobs that have a code."""
    data = [event["data"] for mission in missions for event in lab.engine.events(mission)]
    return [str(one["reason"]) for one in data if isinstance(one, dict) and "code" in one]


def reword(monkeypatch: pytest.MonkeyPatch) -> None:
    def sentence(code: ReasonCode, data: Mapping[str, JsonValue]) -> str:
        return f"{code.value[::-1].replace('_', ' ')}!"

    monkeypatch.setattr(reasons, "sentence", sentence)


@pytest.mark.proof
def test_rewording_every_sentence_changes_nothing_else(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = play(lab)
    replayed = differences(lab, before)
    reword(monkeypatch)
    after = play(lab)
    assert outcome(lab, before) == outcome(lab, after)
    assert set(texts(lab, before)).isdisjoint(texts(lab, after))
    assert len(set(texts(lab, before))) >= 8
    assert differences(lab, before) == replayed
    assert [len(found) for found in differences(lab, after)] == [len(found) for found in replayed]


def test_an_approval_of_a_write_that_cannot_be_undone_outlives_a_rewording(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab.root / "large").write_bytes(b"")
    os.truncate(lab.root / "large", LARGE)
    mission = lab.run(WRITE, DONE, policy=POLICY).id
    lab.engine.approve(lab.jobs(mission)[0].id)
    reword(monkeypatch)
    lab.work()
    assert (lab.root / "large").read_text() == "new\n"


def test_a_hold_in_the_words_of_the_engine_is_not_one_of_the_engine(lab: Lab) -> None:
    """An approval after a hold of a plug-in lets no write go ahead that cannot be undone."""
    large = lab.root / "large"
    large.write_bytes(b"")
    os.truncate(large, LARGE)
    mission = lab.run(WRITE, DONE).id  # held by the default policy
    (job,) = lab.jobs(mission)
    data = json.dumps({"reason": str(because(ReasonCode.IRREVERSIBLE, size=LARGE, most=0))})
    _write(lab, f"UPDATE events SET data = '{data}' WHERE mission_id = {mission} AND event = 'held'")
    lab.engine.approve(job.id)
    lab.work()
    assert (lab.jobs(mission)[0].state, large.stat().st_size) == ("held", LARGE)


@pytest.mark.proof
def test_an_older_database_gets_its_codes(lab: Lab, open_lab: OpenLab, tmp_path: Path) -> None:
    missions = play(lab)
    (lab.root / "large").write_bytes(b"")
    os.truncate(lab.root / "large", LARGE)
    waiting = lab.run(WRITE, DONE, policy=POLICY).id
    lab.engine.approve(lab.jobs(waiting)[0].id)
    before, replayed = outcome(lab, missions), differences(lab, missions)
    _make_older(lab)
    assert outcome(lab, missions) != before
    _shape_as_in(lab, "0008", tmp_path / "older.db")
    upgraded = open_lab()
    assert outcome(upgraded, missions) == before
    assert differences(upgraded, missions) == replayed
    upgraded.work()
    assert (lab.root / "large").read_text() == "new\n"


def _shape_as_in(lab: Lab, version: str, empty: Path) -> None:
    """Give the lab's database the tables, columns and indexes of an older version; `empty` becomes one."""
    with create_engine(f"sqlite:///{empty}", poolclass=NullPool).begin() as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        older = _columns(connection)
        indexes = [
            str(row[0])
            for row in connection.execute(text("SELECT sql FROM sqlite_master WHERE type = 'index'"))
        ]
    url = lab.url.replace("postgresql://", "postgresql+psycopg://", 1)
    with create_engine(url, poolclass=NullPool).begin() as connection:
        newer = _columns(connection)
        for view in VIEWS:  # some read the columns that later versions added
            connection.execute(text(f"DROP VIEW {view.name}"))
        for name in _plain_indexes(connection):  # some have conditions on them
            connection.execute(text(f"DROP INDEX {name}"))
        # Others refer to a table, and the tables of a virtual one go with it.
        cascade = "" if connection.dialect.name == "sqlite" else " CASCADE"
        for table in sorted(newer.keys() - older.keys(), key=len):
            connection.execute(text(f"DROP TABLE IF EXISTS {table}{cascade}"))
        for table, columns in older.items():
            for column in newer[table] - columns:
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
            for column in columns - newer[table]:
                connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {column} BIGINT"))
        for index in indexes:
            if index.startswith("CREATE INDEX"):
                connection.execute(text(index))
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))


def _columns(connection: Connection) -> dict[str, set[str]]:
    inspector = inspect(connection)
    return {
        table: {column["name"] for column in inspector.get_columns(table)}
        for table in inspector.get_table_names()
    }


def _plain_indexes(connection: Connection) -> list[str]:
    """The indexes that no constraint has made."""
    inspector = inspect(connection)
    return [
        str(index["name"])
        for table in inspector.get_table_names()
        for index in inspector.get_indexes(table)
        if not index["unique"]
    ]


def _make_older(lab: Lab) -> None:
    """Take from the events what version 0009 added."""
    for mission, seq, event, stated in lab.rows("SELECT mission_id, seq, event, data FROM events"):
        data = json.loads(str(stated)) if stated is not None else {}
        gone = (*_ADDED, "by") if event == "mission_cancelled" else _ADDED
        kept = {name: value for name, value in data.items() if name not in gone}
        stored = "NULL" if not kept else "'" + json.dumps(kept).replace("'", "''") + "'"
        _write(lab, f"UPDATE events SET data = {stored} WHERE mission_id = {mission} AND seq = {seq}")


def _write(lab: Lab, sql: str) -> None:
    lab.engine.instance.database.write(lambda tx: tx.plain(sql))


def test_the_advice_to_a_rejection_is_not_that_of_a_missing_permission(lab: Lab) -> None:
    mission = lab.run(jobs("change"), DONE).id
    (job,) = lab.jobs(mission)
    lab.engine.reject(job.id, "not today")
    error = lab.engine.job(job.id).error
    assert error is not None
    assert error["error_code"] == ErrorCode.NOT_ALLOWED
    advice = lab.dig(error["recommended_actions"], 0, "description")
    assert advice == because(ReasonCode.REJECTED, words="").advice
    assert advice != ErrorCode.NOT_ALLOWED.meaning.advice
