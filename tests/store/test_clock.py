"""All processes that use a database have the same time, whatever their own clocks say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.clock import SECOND, system_clock
from lcp_engine.store.db import postgres
from lcp_engine.store.db.postgres import ServerClock
from lcp_engine.store.host import shared_clock
from lcp_engine.store.host.shared_clock import SharedClock

SHIFTED = """
import sys, time

shift, of_day, steady = int(sys.argv[2]) * 1000, time.time_ns, time.monotonic_ns
time.time_ns, time.monotonic_ns = lambda: of_day() + shift, lambda: steady() + shift

from lcp_engine import Engine

with Engine(sys.argv[1]) as engine:
    sys.stdin.readline()
    print(engine.instance.database.now(), flush=True)
    sys.stdin.readline()
"""
SHIFTS = [-3600 * SECOND, -12 * SECOND, 12 * SECOND, 3600 * SECOND]
STEP = """
CREATE TABLE step (by_seconds int);
INSERT INTO step VALUES (0);
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
AS 'SELECT pg_catalog.clock_timestamp() + make_interval(secs => (SELECT by_seconds FROM public.step))';
"""


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_process_whose_clock_is_off_has_the_time_of_all(database_url: str, shift: int) -> None:
    with (
        Engine(database_url) as engine,
        Python("-c", SHIFTED, database_url, shift, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        assert other.stdin is not None
        assert other.stdout is not None
        database = engine.instance.database
        _ = database.now()
        error = 0 if database.backend.name == "sqlite" else SECOND
        before = database.now()
        other.stdin.write("\n")
        other.stdin.flush()
        theirs = int(other.stdout.readline())
        assert before - error <= theirs <= database.now() + error
        other.stdin.close()


def test_the_shared_time_never_goes_back_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = [0]
    monkeypatch.setattr(shared_clock, "system_clock", lambda: system_clock() + shift[0])
    first, second = SharedClock(tmp_path / "clock"), SharedClock(tmp_path / "clock")
    before = first()
    for shift[0] in (3600 * SECOND, 0, -3600 * SECOND):
        now = second()
        assert before <= now <= first()
        before = now
    assert before > system_clock() + 3500 * SECOND, "it followed the system's clock forward"
    first.close()
    second.close()
    alone = SharedClock(tmp_path / "clock")
    assert alone() < system_clock(), "nobody remembers the wrong time"
    alone.close()


def test_a_step_of_the_servers_clock_is_followed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "ASK_SECONDS", 0.0)
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(STEP)
        stepped = f"{postgres_url}?options=-csearch_path%3Dpublic,pg_catalog"
        with Engine(stepped) as engine:
            for seconds in (3600, -3600, 0):
                server.execute("UPDATE step SET by_seconds = %s", (seconds,))
                ahead = (engine.instance.database.now() - system_clock()) / SECOND
                assert round(ahead / 600) * 600 == seconds


def test_the_servers_time_is_carried_on_while_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "ASK_SECONDS", 0.0)
    answers = [1_000 * SECOND]

    def ask() -> int:
        if not answers:
            raise psycopg.OperationalError("the server is away")
        return answers.pop()

    clock = ServerClock(ask)
    assert 1_000 * SECOND <= clock() <= clock()
