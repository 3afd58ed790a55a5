"""Drain jobs that do nothing with one runner process: against Huey on SQLite, Procrastinate on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figure, Goal, race, ratio
from benchmarks.setting import Setting

ON_SQLITE = "drain no-op jobs, SQLite"
ON_POSTGRES = "drain no-op jobs, PostgreSQL"


def run(setting: Setting) -> list[Figure]:
    """Backlogs that take the peer about `seconds`."""
    if setting.peers is None:
        return [Figure(ON_SQLITE, "jobs/s", note="the peers are not installed: see `make bench`")]
    figures = [_on_sqlite(setting, int(3000 * setting.seconds))]
    if setting.postgres is None:
        return [*figures, Figure(ON_POSTGRES, "jobs/s", note="no PostgreSQL: tools/postgres make bench")]
    return [*figures, _on_postgres(setting, int(1500 * setting.seconds))]


def _on_sqlite(setting: Setting, backlog: int) -> Figure:
    def engine() -> float:
        with setting.sqlite() as url:
            return setting.run_engine("engine_drain", url, backlog)

    def huey() -> float:
        with setting.sqlite() as url:
            return setting.run_peer("huey_drain.py", str(Path(url.removeprefix("sqlite:///"))), backlog)

    measured = race({"engine": engine, "huey": huey}, setting.rounds)
    return ratio(
        ON_SQLITE, "jobs/s", measured["engine"], measured["huey"], peer="Huey", goal=Goal(2, at_least=True)
    )


def _on_postgres(setting: Setting, backlog: int) -> Figure:
    def engine() -> float:
        with setting.new_postgres() as url:
            return setting.run_engine("engine_drain", url, backlog)

    def procrastinate() -> float:
        with setting.new_postgres() as url:
            return setting.run_peer("procrastinate_drain.py", url, backlog)

    measured = race({"engine": engine, "procrastinate": procrastinate}, setting.rounds)
    ours, theirs = measured["engine"], measured["procrastinate"]
    return ratio(ON_POSTGRES, "jobs/s", ours, theirs, peer="Procrastinate", goal=Goal(5, at_least=True))
