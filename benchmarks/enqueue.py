"""Enqueue jobs, each durable before its call returns; compare with other queues, SQLAlchemy Core and bare drivers."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, create_engine, event, insert
from sqlalchemy import Engine as CoreEngine

from benchmarks.figures import Contender, Figure, Goal, race, ratio
from benchmarks.kinds import nothing
from benchmarks.setting import Setting
from lcp_engine import Engine
from lcp_engine.store.schema import jobs, metadata

if TYPE_CHECKING:
    import psycopg

THREADS = {16: 2.5, 64: 3.3}
PEERS = ("huey", "litequeue", "persist-queue")
WHAT = "enqueue one by one, durable, SQLite"
PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL")
ROW: dict[str, str | int] = {"mission_id": 1, "kind": nothing.kind, "params": "{}", "state": "queued"}
RAW = """
INSERT INTO jobs (mission_id, kind, params, state, created_at) VALUES (:mission_id, :kind, :params, :state, :at)
"""
MISSION = """
INSERT INTO missions (uid, name, goal, spec, status, created_at) VALUES ('b', 'b', 'b', '', 'running', 0)
"""
RAW_POSTGRES = """
INSERT INTO jobs (mission_id, kind, params, state, created_at)
VALUES (%(mission_id)s, %(kind)s, %(params)s, %(state)s, %(at)s) RETURNING id
"""


def run(setting: Setting) -> list[Figure]:
    """The engine also validates, counts and writes an event; the others only insert a row."""
    figures = _on_sqlite(setting)
    return figures if setting.postgres is None else [*figures, _on_postgres(setting)]


def _on_sqlite(setting: Setting) -> list[Figure]:
    with setting.sqlite() as own, setting.sqlite() as core, setting.sqlite() as raw:
        inserting, bare = _core(core), _bare(raw)
        with Engine(own) as engine:
            contenders: dict[str, Contender] = {
                "engine": lambda: _rate(lambda: engine.enqueue(nothing.kind), setting.seconds),
                "core": lambda: _rate(lambda: _insert(inserting), setting.seconds),
                "raw": lambda: _rate(lambda: _insert_raw(bare), setting.seconds),
            }
            for threads in THREADS:
                contenders[f"{threads}"] = partial(_rate_of_threads, engine, threads, setting.seconds)
            for peer in PEERS if setting.peers is not None else ():
                contenders[peer] = partial(_rate_of_peer, setting, peer)
            measured = race(contenders, setting.rounds)
        inserting.dispose()
        bare.close()
    ours, raw_rates = measured["engine"], measured["raw"]
    figures = [
        ratio(WHAT, "jobs/s", ours, measured["core"], peer="SQLAlchemy Core", goal=Goal(0.6, at_least=True)),
        ratio(WHAT, "jobs/s", ours, raw_rates, peer="sqlite3", goal=Goal(0.8, at_least=True)),
    ]
    figures += [ratio(WHAT, "jobs/s", ours, measured[peer], peer=peer) for peer in PEERS if peer in measured]
    for threads, bound in THREADS.items():
        what = f"enqueue from {threads} threads, each job durable, SQLite"
        goal = Goal(bound, at_least=True)
        figures.append(
            ratio(what, "jobs/s", measured[f"{threads}"], raw_rates, peer="sqlite3, one producer", goal=goal)
        )
    return figures


def _on_postgres(setting: Setting) -> Figure:
    import psycopg

    with setting.new_postgres() as own, setting.new_postgres() as raw, Engine(own) as engine:
        maker = create_engine(raw.replace("postgresql://", "postgresql+psycopg://", 1))
        with maker.begin() as made:
            metadata.create_all(made)
            made.exec_driver_sql(MISSION)
        maker.dispose()
        with psycopg.connect(raw, autocommit=True) as bare:
            contenders: dict[str, Contender] = {
                "engine": lambda: _rate(lambda: engine.enqueue(nothing.kind), setting.seconds),
                "raw": lambda: _rate(lambda: _insert_psycopg(bare), setting.seconds),
            }
            measured = race(contenders, setting.rounds)
    what = "enqueue one by one, durable, PostgreSQL"
    return ratio(what, "jobs/s", measured["engine"], measured["raw"], peer="psycopg")


def _insert_psycopg(connection: psycopg.Connection) -> int:
    row = connection.execute(RAW_POSTGRES, {**ROW, "at": time.time_ns() // 1000}).fetchone()
    assert row is not None
    return int(row[0])


def _rate_of_threads(engine: Engine, threads: int, seconds: float) -> float:
    with ThreadPoolExecutor(threads) as pool:
        rates = [pool.submit(_rate, lambda: engine.enqueue(nothing.kind), seconds) for _ in range(threads)]
    return sum(rate.result() for rate in rates)


def _rate_of_peer(setting: Setting, name: str) -> float:
    with setting.sqlite() as url:
        return setting.run_peer("enqueue.py", name, url.removeprefix("sqlite:///"), setting.seconds)


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
    """The engine's own tables and indexes, without enforcing foreign keys."""
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
