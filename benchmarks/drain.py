"""Drain no-op jobs with one runner process, compared with Huey and DBOS on SQLite and two more on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from benchmarks.figures import Contender, Figure, Goal, race, ratio
from benchmarks.setting import Setting

ON_SQLITE = "drain no-op jobs, SQLite"
ONE_BY_ONE = "drain no-op jobs, one commit a job, SQLite"
ON_POSTGRES = "drain no-op jobs, PostgreSQL"
SLOW = 30  # DBOS gets this many times fewer jobs


def run(setting: Setting) -> list[Figure]:
    """Backlogs that the peer needs about `seconds` for."""
    if setting.peers is None:
        return [Figure(ON_SQLITE, "jobs/s", note="the peers are not installed: see `make bench`")]
    figures = _on_sqlite(setting, int(3000 * setting.seconds))
    if setting.postgres is None:
        return [*figures, Figure(ON_POSTGRES, "jobs/s", note="no PostgreSQL: tools/postgres make bench")]
    return [*figures, *_on_postgres(setting, int(1500 * setting.seconds))]


def _on_sqlite(setting: Setting, backlog: int) -> list[Figure]:
    contenders: dict[str, Contender] = {
        "engine": partial(_engine, setting, setting.sqlite, backlog),
        "one by one": partial(_engine, setting, setting.sqlite, backlog, 1),
        "huey": partial(_peer, setting, "huey_drain.py", backlog),
        "dbos": partial(_peer, setting, "dbos_drain.py", max(20, backlog // SLOW)),
    }
    measured = race(contenders, setting.rounds)
    huey = "Huey, results kept"
    return [
        _figure(ON_SQLITE, measured["engine"], measured["huey"], huey, 6),
        _figure(ON_SQLITE, measured["engine"], measured["dbos"], "DBOS", 50),
        _figure(ONE_BY_ONE, measured["one by one"], measured["huey"], huey, 1.5),
    ]


def _on_postgres(setting: Setting, backlog: int) -> list[Figure]:
    contenders: dict[str, Contender] = {
        "engine": partial(_engine, setting, setting.new_postgres, backlog),
        "procrastinate": partial(_peer_on_postgres, setting, "procrastinate_drain.py", backlog),
        "pgqueuer": partial(_peer_on_postgres, setting, "pgqueuer_drain.py", backlog),
    }
    measured = race(contenders, setting.rounds)
    return [
        _figure(ON_POSTGRES, measured["engine"], measured["procrastinate"], "Procrastinate", 20),
        _figure(ON_POSTGRES, measured["engine"], measured["pgqueuer"], "PgQueuer, batch 100", 1.3),
    ]


def _figure(what: str, ours: list[float], theirs: list[float], peer: str, bound: float) -> Figure:
    return ratio(what, "jobs/s", ours, theirs, peer=peer, goal=Goal(bound, at_least=True))


def _engine(
    setting: Setting, new: Callable[[], AbstractContextManager[str]], backlog: int, *most: int
) -> float:
    with new() as url:
        return setting.run_engine("engine_drain", url, backlog, *most)


def _peer(setting: Setting, script: str, backlog: int) -> float:
    with setting.sqlite() as url:
        return setting.run_peer(script, str(Path(url.removeprefix("sqlite:///"))), backlog)


def _peer_on_postgres(setting: Setting, script: str, backlog: int) -> float:
    with setting.new_postgres() as url:
        return setting.run_peer(script, url, backlog)
