"""Find rows that contradict each other: references, counters, leases, changes, approvals.

Each rule is one query for what must not be, and the sentence that names what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import SETTLED, State, fulfils
from lcp_engine.core.kinds import UNDO
from lcp_engine.store.conditions import LIVE, WAITING
from lcp_engine.store.db.open import tables_of
from lcp_engine.store.db.transaction import Tx

MOST = 100
"""Rows that one rule names."""
GRACE = 60 * SECOND
"""How long runners may take to notice that one of them is gone."""

_SETTLED = "(" + ", ".join(f"'{state}'" for state in sorted(SETTLED)) + ")"
_PRUNED = "(SELECT id FROM missions WHERE pruned_at IS NOT NULL)"


class Rule(NamedTuple):
    """Sentence about every row that `sql` finds; `{0}` is its first column. `{now}` in the SQL is the time.

    `table` is that of a feature, which may not be there.
    """

    say: str
    sql: str
    table: str = "missions"


def broken_rules(tx: Tx) -> Iterator[str]:
    """Faults, a sentence each; of each kind at most `MOST`."""
    if tx.is_sqlite:
        for table, row, parent, _ in tx.query_plain("PRAGMA foreign_key_check"):
            yield f"row {row} of {table} refers to a row of {parent} that is not there"
    yield from _wrong_mission_counters(tx)
    yield from _wrong_plan_counters(tx)
    there = tables_of(tx)
    for say, sql, table in RULES if tx.is_sqlite else (*_LOOKED_UP_BY_NOBODY, *RULES):
        for row in (
            tx.query_plain(f"{sql.replace('{now}', str(tx.now))} LIMIT {MOST}") if table in there else ()
        ):
            yield say.format(*row)


def _wrong_mission_counters(tx: Tx) -> Iterator[str]:
    found = tx.query_plain("SELECT mission_id, state, count(*) FROM jobs GROUP BY mission_id, state")
    there = {(mission, state): count for mission, state, count in found}
    columns = ", ".join(State)
    kept = f"SELECT id, {columns} FROM missions WHERE pruned_at IS NULL ORDER BY id"
    for mission, *counts in tx.query_plain(kept):
        for state, counted in zip(State, counts, strict=True):
            count = there.get((mission, state.value), 0)
            if counted != count:
                yield f"mission {mission}: it counts {counted} {state} jobs; there are {count}"


def _wrong_plan_counters(tx: Tx) -> Iterator[str]:
    is_open = "CASE WHEN state = 'held' THEN 0 ELSE 1 END"
    sql = (
        f"SELECT p.id, p.open, p.held, coalesce(j.open, 0), coalesce(j.held, 0) FROM plans p LEFT JOIN "
        f"(SELECT plan_id, sum({is_open}) AS open, sum(1 - {is_open}) AS held FROM jobs WHERE {LIVE} GROUP BY 1) j "
        f"ON j.plan_id = p.id WHERE p.mission_id NOT IN {_PRUNED} ORDER BY p.id"
    )
    for plan, opened, held, is_open_, is_held in tx.query_plain(sql):
        for word, counted, count in (("open", opened, is_open_), ("held", held, is_held)):
            if counted != count:
                yield f"plan {plan}: it counts {counted} {word} jobs; there are {count}"


def _refers(table: str, column: str, parent: str, *, key: str = "id") -> Rule:
    """A reference within a mission that the database itself does not enforce."""
    one, other = table.removesuffix("s"), parent.removesuffix("s")
    own = "id" if table == "missions" else "mission_id"
    return Rule(
        f"{one} {{0}}: its {column} is {{1}}; its mission has no such {other}",
        f"SELECT c.{key}, c.{column} FROM {table} c LEFT JOIN {parent} p ON p.id = c.{column} "
        f"WHERE c.{column} IS NOT NULL AND (p.id IS NULL OR p.mission_id <> c.{own}) AND c.{own} NOT IN {_PRUNED}",
    )


_LOOKED_UP_BY_NOBODY = (
    Rule(
        "event {1} of mission {0} refers to a row of missions that is not there",
        "SELECT e.mission_id, e.seq FROM events e LEFT JOIN missions m ON m.id = e.mission_id WHERE m.id IS NULL",
    ),
    Rule(
        "attempt {1} of job {0} refers to a row of jobs that is not there",
        "SELECT a.job_id, a.attempt FROM attempts a LEFT JOIN jobs j ON j.id = a.job_id WHERE j.id IS NULL",
    ),
)
"""What SQLite's own check finds; PostgreSQL has no such keys (see schema.py)."""
_REFERENCES = (
    _refers("missions", "root_plan", "plans"),
    _refers("missions", "asking", "jobs"),
    _refers("plans", "job_id", "jobs"),
    _refers("plans", "parent_id", "plans"),
    _refers("jobs", "plan_id", "plans"),
    _refers("jobs", "parent_id", "jobs"),
    _refers("turns", "job_id", "jobs", key="number"),
    _refers("turns", "plan_id", "plans", key="number"),
    _refers("changes", "job_id", "jobs"),
    _refers("changes", "undoes", "changes"),
)
_MISSIONS = (
    Rule(
        "mission {0}: it counts {1} questions; {2} are stored",
        "SELECT m.id, m.questions, coalesce(t.found, 0) FROM missions m LEFT JOIN (SELECT mission_id, count(*) AS "
        "found FROM turns GROUP BY mission_id) t ON t.mission_id = m.id "
        "WHERE m.questions <> coalesce(t.found, 0) AND m.pruned_at IS NULL",
    ),
    Rule(
        "mission {0}: it is {1}, so it should {2}",
        "SELECT id, status, CASE WHEN ended_at IS NULL THEN 'have the time of its end; it has none' ELSE "
        "'have no time of its end; it has one' END FROM missions "
        "WHERE (status IN ('running', 'waiting')) <> (ended_at IS NULL)",
    ),
    Rule(
        "mission {0}: it waits for a person, so no job of it should be queued or running; {1} are",
        "SELECT id, queued + running FROM missions WHERE status = 'waiting' AND queued + running > 0",
    ),
    Rule(
        "mission {0}: {1} jobs of it run; its running time should {2}",
        "SELECT id, running, CASE WHEN running_since IS NULL THEN 'be counted; it is not' ELSE 'stop; it is counted' "
        "END FROM missions WHERE (running > 0) <> (running_since IS NOT NULL)",
    ),
)
_FULFILLED = " OR ".join(
    f"(b.state = '{state}' AND e.needs = '{need}')" for state in sorted(SETTLED) for need in fulfils(state)
)
_JOBS = (
    Rule(
        "job {0}: it follows job {1}; its mission has no such job",
        "SELECT e.job_id, e.after_id FROM edges e LEFT JOIN jobs j ON j.id = e.job_id "
        "LEFT JOIN jobs b ON b.id = e.after_id WHERE j.id IS NULL OR b.id IS NULL OR j.mission_id <> b.mission_id",
    ),
    Rule(
        "job {0}: it is {1}; job {2}, which has to succeed before it, is {3}",
        "SELECT j.id, j.state, b.id, b.state FROM edges e JOIN jobs j ON j.id = e.job_id "
        "JOIN jobs b ON b.id = e.after_id WHERE e.needs = 'success' "
        "AND j.state IN ('queued', 'running', 'succeeded') AND b.state <> 'succeeded'",
    ),
    Rule(
        "job {0}: it has to follow job {1}, which was made later",
        "SELECT job_id, after_id FROM edges WHERE after_id >= job_id",
    ),
    Rule(
        "job {0}: it waits for {1} jobs; by its edges it should wait for {2}",
        "SELECT j.id, coalesce(j.waits_for, -1), e.count FROM jobs j JOIN (SELECT e.job_id, "
        f"sum(CASE WHEN {_FULFILLED} THEN 0 ELSE 1 END) AS count FROM edges e JOIN jobs b ON b.id = e.after_id "
        "GROUP BY e.job_id) e ON e.job_id = j.id WHERE j.waits_for IS NULL OR j.waits_for <> e.count",
    ),
    Rule(
        "job {0}: it waits for {1} jobs; no edge ends at it",
        "SELECT id, waits_for FROM jobs j WHERE waits_for IS NOT NULL "
        "AND NOT EXISTS (SELECT 1 FROM edges e WHERE e.job_id = j.id)",
    ),
    Rule(
        "job {0}: it has {1} followers; {2} edges begin at it",
        "SELECT j.id, j.followers, coalesce(e.count, 0) FROM jobs j LEFT JOIN (SELECT after_id, count(*) AS count "
        "FROM edges GROUP BY after_id) e ON e.after_id = j.id WHERE j.followers <> coalesce(e.count, 0)",
    ),
    Rule(
        "job {0}: it is {1}, so it should not expire; it does",
        "SELECT id, state FROM jobs WHERE held_until IS NOT NULL AND state <> 'held'",
    ),
    Rule(
        "job {0}: it is {1}, so it should {2}",
        "SELECT id, state, CASE WHEN ended_at IS NULL THEN 'have the time of its end; it has none' "
        "ELSE 'have no time of its end; it has one' END FROM jobs "
        f"WHERE (state IN {_SETTLED}) <> (ended_at IS NOT NULL)",
    ),
    Rule(
        "job {0}: it waits for a permit of {1}; there is no such limit",
        "SELECT j.id, j.limited_by FROM jobs j LEFT JOIN limits l ON l.name = j.limited_by "
        f"WHERE j.{WAITING.replace('AND ', 'AND j.')} AND l.name IS NULL",
        "limits",
    ),
    Rule(
        "job {0}: it is an undo, which belongs to no plan and needs no approval; it has either",
        f"SELECT id FROM jobs WHERE kind = '{UNDO}' AND (approved <> 0 OR plan_id IS NOT NULL)",
    ),
    Rule(
        "job {0}: it is succeeded, so it should have a result; there is none",
        "SELECT id FROM jobs WHERE state = 'succeeded' AND result IS NULL AND result_sha256 IS NULL",
    ),
    Rule(
        "job {0}: its result is content {1}; that is not there",
        "SELECT j.id, j.result_sha256 FROM jobs j LEFT JOIN results r ON r.sha256 = j.result_sha256 "
        "WHERE j.result_sha256 IS NOT NULL AND r.sha256 IS NULL",
    ),
)
_LEASES = (
    Rule(
        "job {0}: it is running on attempt {1}; it names no runner that there is",
        "SELECT j.id, j.attempt FROM jobs j LEFT JOIN runners r ON r.id = j.runner_id "
        "WHERE j.state = 'running' AND r.id IS NULL",
    ),
    # A lease of a dead runner is not a fault if no runner was there to take it back: the next one does.
    Rule(
        "job {0}: its lease with runner {1} has ended; runners were there for {2} s since, and did not take it back",
        f"SELECT j.id, r.id, (l.alive_until - r.alive_until) / {SECOND} FROM jobs j "
        "JOIN runners r ON r.id = j.runner_id "
        "CROSS JOIN (SELECT max(alive_until) AS alive_until FROM runners WHERE started_at < {now}) l "
        f"WHERE j.state = 'running' AND r.alive_until < {{now}} AND l.alive_until - r.alive_until > {GRACE}",
    ),
)
_ATTEMPTS = (
    Rule(
        "job {0}: attempt {1} ended; only {2} were begun",
        "SELECT a.job_id, a.attempt, j.attempt FROM attempts a JOIN jobs j ON j.id = a.job_id "
        "WHERE a.attempt < 1 OR a.attempt > j.attempt",
    ),
    Rule(
        "job {0}: attempt {1} is under way and has ended as {2!r}",
        "SELECT a.job_id, a.attempt, a.outcome FROM jobs j "
        "JOIN attempts a ON a.job_id = j.id AND a.attempt = j.attempt WHERE j.state = 'running'",
    ),
    Rule(
        "job {0}: a person approved it from attempt {1} on; it counts {2}",
        "SELECT a.job_id, a.attempt, j.attempt FROM approvals a JOIN jobs j ON j.id = a.job_id "
        "WHERE a.attempt < 1 OR a.attempt > j.attempt + 1",
    ),
    Rule(
        "job {0}: what {1} approved is stored for attempt {2}; approvals of the job begin with {3} (0: there is none)",
        "SELECT a.job_id, a.person, a.attempt, j.approved FROM approvals a JOIN jobs j ON j.id = a.job_id "
        "WHERE a.attempt > j.approved",
    ),
)
_CHANGES = (
    Rule(
        "change {0}: it is {1}, so it should {2}",
        "SELECT id, state, CASE WHEN closed_at IS NULL THEN 'have the time when it was closed; it has none' "
        "ELSE 'be open; it has the time when it was closed' END FROM changes "
        "WHERE (state = 'intent') <> (closed_at IS NULL)",
    ),
    # The next runner closes them, unless it cannot reach their directory (R20).
    Rule(
        "change {0}: job {2} is {3}, so its intent to write {1!r} should be closed; it is open",
        "SELECT c.id, c.file, j.id, j.state FROM changes c JOIN jobs j ON j.id = c.job_id "
        f"WHERE c.state = 'intent' AND j.state IN {_SETTLED}",
    ),
    Rule(
        "change {0}: it belongs to attempt {2} of job {1}; {3} were begun",
        "SELECT c.id, c.job_id, c.attempt, j.attempt FROM changes c JOIN jobs j ON j.id = c.job_id "
        "WHERE c.attempt < 1 OR (c.attempt > j.attempt AND c.undoes IS NULL)",
    ),
    Rule(
        "change {0}: its job {1} is a {2}, so it should {3} an earlier change",
        "SELECT c.id, j.id, j.kind, CASE WHEN c.undoes IS NULL THEN 'take back' ELSE 'not take back' END "
        "FROM changes c JOIN jobs j ON j.id = c.job_id "
        f"WHERE (j.kind = '{UNDO}') <> (c.undoes IS NOT NULL)",
    ),
    Rule(
        "change {0}: it takes back change {1} of {2!r}; it is one of {3!r}",
        "SELECT c.id, u.id, u.file, c.file FROM changes c JOIN changes u ON u.id = c.undoes "
        "WHERE u.file <> c.file OR u.id >= c.id",
    ),
    Rule(
        "change {0}: the content that it replaced ({1}) should be in the database; it is not",
        "SELECT c.id, c.sha256_before FROM changes c LEFT JOIN blobs b ON b.sha256 = c.sha256_before "
        "WHERE c.sha256_before IS NOT NULL AND b.sha256 IS NULL",
    ),
)
_SCHEDULES = (
    Rule(
        "schedule {0}: its newest mission is {1}, which belongs to {2}",
        "SELECT s.name, m.id, coalesce(m.schedule, 'none') FROM schedules s JOIN missions m ON m.id = s.mission_id "
        "WHERE m.schedule IS NULL OR m.schedule <> s.name",
        "schedules",
    ),
)
_MEMORY = (
    Rule(
        "memory of root {0!r}: it counts {1} entries; there are {2}",
        "SELECT r.path, r.entries, coalesce(m.found, 0) FROM memory_roots r LEFT JOIN (SELECT root_id, count(*) AS "
        "found FROM memories GROUP BY root_id) m ON m.root_id = r.id WHERE r.entries <> coalesce(m.found, 0)",
        "memories",
    ),
)

RULES = (
    *_REFERENCES,
    *_MISSIONS,
    *_JOBS,
    *_LEASES,
    *_ATTEMPTS,
    *_CHANGES,
    *_SCHEDULES,
    *_MEMORY,
)
