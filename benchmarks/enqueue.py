"""Enqueue jobs one by one, each durable before the next: against SQLAlchemy Core and the bare driver on SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, create_engine, event, insert
from sqlalchemy import Engine as CoreEngine

from benchmarks.figures import Figure, Goal, race, ratio
from benchmarks.kinds import nothing
from benchmarks.setting import Setting
from lcp_engine import Engine
from lcp_engine.store.schema import jobs, metadata

WHAT = "enqueue one by one, durable, SQLite"
PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL")
ROW: dict[str, str | int] = {"mission_id": 1, "kind": nothing.kind, "params": "{}", "state": "queued"}
RAW = """
INSERT INTO jobs (mission_id, kind, params, state, created_at) VALUES (:mission_id, :kind, :params, :state, :at)
"""


def run(setting: Setting) -> list[Figure]:
    """The engine validates, counts and writes an event as well; the others insert a row."""
    with setting.sqlite() as own, setting.sqlite() as core, setting.sqlite() as raw:
        inserting, bare = _core(core), _bare(raw)
        with Engine(own) as engine:
            contenders = {
                "engine": lambda: _rate(lambda: engine.enqueue(nothing.kind), setting.seconds),
                "core": lambda: _rate(lambda: _insert(inserting), setting.seconds),
                "raw": lambda: _rate(lambda: _insert_raw(bare), setting.seconds),
            }
            measured = race(contenders, setting.rounds)
        inserting.dispose()
        bare.close()
    ours = measured["engine"]
    return [
        ratio(WHAT, "jobs/s", ours, measured["core"], peer="SQLAlchemy Core", goal=Goal(0.6, at_least=True)),
        ratio(WHAT, "jobs/s", ours, measured["raw"], peer="sqlite3"),
    ]


def _rate(enqueue: Callable[[], int], seconds: float) -> float:
    count, began = 0, time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        enqueue()
        count += 1
    return count / (now - began)


def _core(url: str) -> CoreEngine:
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _: object) -> None:
        for pragma in PRAGMAS:
            connection.execute(pragma)

    with engine.begin() as connection:
        _create(connection)
    return engine


def _create(connection: Connection) -> None:
    """The engine's own tables and indexes; nobody enforces their foreign keys here."""
    metadata.create_all(connection)


def _insert(engine: CoreEngine) -> int:
    with engine.begin() as connection:
        key = connection.execute(
            insert(jobs).values(**ROW, created_at=time.time_ns() // 1000)
        ).inserted_primary_key
    assert key is not None
    return int(key[0])


def _bare(url: str) -> sqlite3.Connection:
    path = Path(url.removeprefix("sqlite:///"))
    engine = create_engine(url)
    with engine.begin() as made:
        _create(made)
    engine.dispose()
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(pragma)
    return connection


def _insert_raw(connection: sqlite3.Connection) -> int:
    connection.execute("BEGIN IMMEDIATE")
    row = connection.execute(RAW, {**ROW, "at": time.time_ns() // 1000})
    connection.execute("COMMIT")
    assert row.lastrowid is not None
    return row.lastrowid
