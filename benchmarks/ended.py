"""Fill a database with missions that have ended and everything that their jobs left."""

from __future__ import annotations

from functools import partial

from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx

ROWS = 5
"""What a finished job leaves: itself, an attempt and three events."""

_SPEC = '{"goal": "x", "planner": {"type": "script"}, "limits": {}}'
_MISSIONS = """
INSERT INTO missions (id, uid, name, goal, planner, spec, status, outcome, events, turns, succeeded, created_at,
    started_at, ended_at)
SELECT i, 'req-' || i, 'mission ' || i, 'x', 'script', '{spec}', 'completed', 'mission_complete',
    {events}, 0, {each}, i, i, i
FROM ({numbers}) numbers
"""
_JOBS = (
    """
INSERT INTO jobs (id, mission_id, kind, params, state, attempt, created_at, started_at, ended_at, settled_seq, result)
SELECT i, {mission}, 'bench.nothing', '{{}}', 'succeeded', 1, i, i, i, 3 * (i - {before}) + 1, '{{}}'
FROM ({numbers}) numbers
""",
    """
INSERT INTO attempts (job_id, attempt, started_at, ended_at, outcome)
SELECT i, 1, i, i, 'succeeded' FROM ({numbers}) numbers
""",
    "INSERT INTO events (mission_id, seq, job_id, at, event) VALUES ({mission}, 1, NULL, 1, 'launched')",
    """
INSERT INTO events (mission_id, seq, job_id, at, event)
SELECT {mission}, 3 * (i - {before}) + place, i, i, event FROM ({numbers}) numbers
CROSS JOIN (SELECT -1 AS place, 'queued' AS event UNION ALL SELECT 0, 'started' UNION ALL SELECT 1, 'succeeded') three
""",
)
_NUMBERS = (
    "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT i FROM n"
)


def fill_with_ended(database: Database, missions: int, each: int) -> None:
    """Store `missions` missions of `each` finished jobs in an empty database; they ended in order."""
    database.write(partial(_add_missions, missions=missions, each=each))
    for mission in range(1, missions + 1):
        database.write(partial(_add_jobs, mission=mission, each=each))
    if database.backend.name == "postgresql":
        database.write(_count_on)
    database.write(lambda tx: tx.plain("ANALYZE"))


def _add_missions(tx: Tx, missions: int, each: int) -> None:
    numbers = _NUMBERS.format(first=1, last=missions)
    tx.plain(_MISSIONS.format(numbers=numbers, spec=_SPEC, events=1 + 3 * each, each=each))


def _add_jobs(tx: Tx, mission: int, each: int) -> None:
    before = (mission - 1) * each
    numbers = _NUMBERS.format(first=before + 1, last=before + each)
    for sql in _JOBS:
        tx.plain(sql.format(mission=mission, before=before, numbers=numbers))


def _count_on(tx: Tx) -> None:
    """PostgreSQL counts only the ids that it assigned itself."""
    for table in ("missions", "jobs"):
        tx.plain(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")
