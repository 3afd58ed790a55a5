"""Delete missions that ended long ago, in short transactions (`lcp db prune`).

A mission is marked first, which hides it from every view and from everything that would change it; then its rows are
deleted, those of a job together with the events that created it. An interrupted prune is finished by the next one.

A transaction ends after some milliseconds of work, however many rows it deleted, and after a quarter of that if another
process waits to write. SQLite's WAL is checkpointed between transactions while others write, and rarely while they
have to wait, so that the WAL can start anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import bindparam, delete, distinct, func, select, text

from lcp_engine.clock import Micros
from lcp_engine.core.job_states import CREATIONS
from lcp_engine.feature import installed
from lcp_engine.features.memory.store.memories import remove_expired
from lcp_engine.store.changes import changed_paths
from lcp_engine.store.conditions import APPENDED
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Connection, Row, Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.schema import events, every_table, tables_of_packages

_MARKED_AT_ONCE = 20
"""Missions that are marked in one transaction; each is locked, checked again and written."""
_SETTLED = "queued = 0 AND running = 0 AND blocked = 0 AND held = 0"
_MAY_GO = {
    # What a merge or an undo that is under way leads to is needed until it is carried out.
    "blobs": "NOT EXISTS (SELECT 1 FROM changes c WHERE c.sha256_before = blobs.sha256) AND NOT EXISTS "
    "(SELECT 1 FROM changes c WHERE c.state = 'intent' AND c.sha256_after = blobs.sha256)",
    "results": "NOT EXISTS (SELECT 1 FROM jobs j WHERE j.result_sha256 = results.sha256)",
}
"""When nothing that happened refers to a content."""
_UNREFERENCED = {
    "blobs": f"{_MAY_GO['blobs']} AND NOT EXISTS (SELECT 1 FROM blobs d WHERE d.base = blobs.sha256)",
    "results": _MAY_GO["results"],
}
"""When nothing refers to it, other contents included."""
_BASES = f"SELECT sha256, base FROM blobs WHERE {APPENDED}"

_THESE = (
    events.c.mission_id == bindparam("mission"),
    events.c.seq.between(bindparam("first"), bindparam("last")),
)
_BEGIN = text(
    f"event IN ({', '.join(repr(made.event) for made in CREATIONS.values())}) AND job_id IS NOT NULL"
)
_JOB_ID = distinct(events.c.job_id)
_BEGUN = Statement(
    select(func.count(_JOB_ID), func.min(events.c.job_id), func.max(events.c.job_id)).where(*_THESE, _BEGIN)
)
_BEGUN_IDS = Statement(select(events.c.job_id).distinct().where(*_THESE, _BEGIN))
_REMOVE_EVENTS = Statement(delete(events).where(*_THESE))


class _Removals(NamedTuple):
    """Tables with the column of the jobs with which their rows go, those first that refer to others, and statements."""

    of_jobs: Sequence[tuple[str, str]]
    of_jobs_between: Sequence[Statement]
    of_mission: Sequence[Statement]


@cache
def _removals() -> _Removals:
    """Read what features state once a database is open: by then it is known which tables cannot be created."""
    tables = {table.name: table for table in (*every_table(), *(table for _, table in tables_of_packages()))}

    def stated(column: str) -> list[str]:
        found = {name: one for name, (_, one) in reversed([*installed().tables.items()]) if name in tables}
        return [name for name, one in found.items() if one == column and column in tables[name].c]

    of_jobs = (
        ("changes", "job_id"), ("turns", "job_id"), ("attempts", "job_id"), ("reviews", "job_id"),
        ("approvals", "job_id"), *((name, "job_id") for name in stated("job_id")), ("edges", "job_id"), ("jobs", "id"),
    )  # fmt: skip
    between = [
        tables[name].c[column].between(bindparam("lowest"), bindparam("highest")) for name, column in of_jobs
    ]
    of_mission = (tables[name] for name in ("plans", "viewed_files", *stated("mission_id")))
    return _Removals(
        of_jobs,
        [
            Statement(delete(tables[name]).where(where))
            for (name, _), where in zip(of_jobs, between, strict=True)
        ],
        [Statement(delete(one).where(one.c.mission_id == bindparam("mission"))) for one in of_mission],
    )


@dataclass(frozen=True)
class Pruned:
    """Counts of deletions, done or planned. `kept_for_undo` missions were kept: their changes could still be undone.

    `memories` are the entries of memory that had expired.
    """

    missions: int = 0
    kept_for_undo: int = 0
    rows: int = 0
    contents: int = 0
    runners: int = 0
    memories: int = 0


def prune(
    database: Database,
    *,
    ended_before: Micros,
    keep: int = 0,
    preimages: bool = False,
    dry_run: bool = False,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Pruned:
    """Delete the missions that ended before a time and have nothing open, and contents without references.

    The `keep` missions that ended last stay, and so do those whose changes of files could still be undone, unless
    `preimages` says that these may go too. Their ids and keys are never used again. Once it `is_stopping`, the rest is
    left to the next prune.
    """
    wanted, kept = database.read(
        lambda tx: choose(tx, ended_before=ended_before, keep=keep, preimages=preimages)
    )
    if dry_run:
        return Pruned(len(wanted), kept)
    count = 0
    for at in range(0, len(wanted), _MARKED_AT_ONCE):
        if not is_stopping():
            count += database.write(partial(_mark, missions=wanted[at : at + _MARKED_AT_ONCE]))
    with sweep(database, is_stopping=is_stopping) as sweeping:
        marked = database.read(_marked)
        rows = sweeping.remove(
            [Work(range(1, last + 1), partial(_remove_events, mission=mission)) for mission, last in marked]
        )
        contents = sum(_sweep_contents(sweeping, database, table) for table in _UNREFERENCED)
        idle = database.read(partial(_idle_runners, ended_before=ended_before))
        gone = sweeping.remove([Work(idle, _remove_runners)])
    pruned = Pruned(count, kept, rows, contents, gone, _forget_expired(database))
    if pruned != Pruned(kept_for_undo=kept):
        database.write(_make_durable)
    return pruned


def _forget_expired(database: Database) -> int:
    count = 0
    while gone := database.write(remove_expired):
        count += gone
    return count


def choose(tx: Tx, *, ended_before: Micros, keep: int, preimages: bool) -> tuple[list[int], int]:
    """The missions that may go, the oldest first, and how many stay for undo alone."""
    # SQLite gives the highest id again where its row is gone, and a late attempt knows its job by that id.
    newest = "(SELECT mission_id FROM jobs WHERE id = (SELECT max(id) FROM jobs))"
    ended = [
        row[0]
        for row in tx.query_plain(
            "SELECT id FROM missions WHERE pruned_at IS NULL AND ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC"
        )
    ]
    old = {
        row[0]
        for row in tx.query_plain(
            f"SELECT id FROM missions WHERE pruned_at IS NULL AND ended_at < {int(ended_before)} AND {_SETTLED} "
            f"AND id <> coalesce({newest}, 0) "
            "AND id NOT IN (SELECT mission_id FROM changes WHERE state = 'intent')"
        )
    }
    found = [mission for mission in reversed(ended[keep:]) if mission in old]
    if preimages:
        return found, 0
    changed = {
        row[0] for row in tx.query_plain("SELECT DISTINCT mission_id FROM changes WHERE state = 'applied'")
    }
    needed = {mission for mission in found if mission in changed and changed_paths(tx, mission)}
    return [mission for mission in found if mission not in needed], len(needed)


def _mark(tx: Tx, missions: Sequence[int]) -> int:
    """Mark missions as pruned; those that were resumed meanwhile stay. Leaves out what another prune has marked."""
    ledger, count = ledger_of(tx), 0
    there = f"id IN ({', '.join(map(str, missions))}) AND pruned_at IS NULL"
    lock = "" if tx.is_sqlite else " FOR UPDATE"
    left = [row[0] for row in tx.query_plain(f"SELECT id FROM missions WHERE {there} ORDER BY id{lock}")]
    ledger.lock(left)
    for mission_id in left:
        mission = ledger.mission(mission_id)
        if mission.has_ended and mission.open == 0 and mission.held == 0:
            tx.plain(
                f"UPDATE missions SET pruned_at = {tx.now}, spec = '{{}}', summary = NULL, deliverables = NULL, "
                f"metrics = NULL, error = NULL, root_plan = NULL, session_id = NULL, user_id = NULL, "
                f"result = NULL, target_file = NULL, issues = NULL, recommendations = NULL, assessment = NULL "
                f"WHERE id = {mission_id}"
            )
            count += 1
    return count


def _marked(tx: Tx) -> list[tuple[int, int]]:
    """Missions whose rows are not gone yet, with the number of their last event: an earlier prune may have stopped."""
    rows = tx.query_plain(
        "SELECT id, events FROM missions m WHERE pruned_at IS NOT NULL "
        "AND EXISTS (SELECT 1 FROM events e WHERE e.mission_id = m.id) ORDER BY id"
    )
    return [(row[0], row[1]) for row in rows]


def _remove_events(tx: Tx, some: Sequence[int], mission: int) -> int:
    """Some of a mission's events, in order, and all rows of the jobs that begin with them."""
    these = {"mission": mission, "first": some[0], "last": some[-1]}
    ((count, lowest, highest),) = tx.rows(_BEGUN, **these)
    gone, counts = 0, []
    if count and highest - lowest + 1 == count:  # no other mission's jobs between them
        counts = [
            tx.start(statement, lowest=lowest, highest=highest) for statement in _removals().of_jobs_between
        ]
    elif count:
        gone = _remove_named(tx, tx.rows(_BEGUN_IDS, **these))
    if some[0] == 1:
        counts += [tx.start(statement, mission=mission) for statement in _removals().of_mission]
    counts.append(tx.start(_REMOVE_EVENTS, **these))
    return gone + sum(changed() for changed in counts)


def _remove_named(tx: Tx, found: Sequence[Row]) -> int:
    ids = ", ".join(str(row[0]) for row in found)
    return sum(
        tx.run_plain(f"DELETE FROM {table} WHERE {column} IN ({ids})")
        for table, column in _removals().of_jobs
    )


def _sweep_contents(sweeping: Sweep, database: Database, table: str) -> int:
    levels = database.read(partial(_unreferenced, table=table))
    return sweeping.remove([Work(hashes, partial(_remove_contents, table=table)) for hashes in levels])


def _unreferenced(tx: Tx, table: str) -> list[list[str]]:
    """Contents that may go, those first that are stored on others of them."""
    rows = tx.query_plain(f"SELECT sha256 FROM {table} WHERE {_MAY_GO[table]} ORDER BY sha256")
    found = [str(row[0]) for row in rows]
    return (
        levels_of(found, {str(sha): str(base) for sha, base in tx.query_plain(_BASES)})
        if table == "blobs"
        else [found]
    )


def levels_of(found: Iterable[str], base_of: Mapping[str, str]) -> list[list[str]]:
    """`found` without what the others are stored on, by the length of the chain beneath, the longest first."""
    going = set(found)
    for sha in base_of:
        base = base_of.get(sha) if sha not in going else None
        while base in going:
            going.remove(base)
            base = base_of.get(base)
    levels: dict[int, list[str]] = {}
    depths: dict[str, int] = {}
    for sha in sorted(going):
        chain = [sha]
        while chain[-1] not in depths and chain[-1] in base_of:
            chain.append(base_of[chain[-1]])
        depth = depths.setdefault(chain.pop(), 0)
        for one in reversed(chain):
            depth += 1
            depths[one] = depth
        levels.setdefault(depths[sha], []).append(sha)
    return [levels[depth] for depth in sorted(levels, reverse=True)]


def _remove_contents(tx: Tx, hashes: Sequence[str], table: str) -> int:
    """Delete contents, unless a row refers to them by now."""
    named = ", ".join(f"'{sha}'" for sha in hashes)
    if not tx.is_sqlite:  # a transaction that is about to refer to one of them has locked it
        rows = tx.query_plain(f"SELECT sha256 FROM {table} WHERE sha256 IN ({named}) FOR UPDATE SKIP LOCKED")
        named = ", ".join(f"'{row[0]}'" for row in rows)
    these = f"sha256 IN ({named}) AND {_UNREFERENCED[table]}"
    return tx.run_plain(f"DELETE FROM {table} WHERE {these}") if named else 0


def _idle_runners(tx: Tx, ended_before: Micros) -> list[int]:
    """Runners that ended before a time and that nothing names: one that has ended is named by nothing new."""
    ended = f"SELECT id FROM runners WHERE ended_at < {int(ended_before)}"
    found = {int(row[0]) for row in tx.query_plain(ended)}
    for table in ("attempts", "jobs") if found else ():
        found -= {row[0] for row in tx.query_plain(f"SELECT DISTINCT runner_id FROM {table}")}
    return sorted(found)


def _remove_runners(tx: Tx, ids: Sequence[int]) -> int:
    return tx.run_plain(f"DELETE FROM runners WHERE id IN ({', '.join(map(str, ids))})")


def _make_durable(tx: Tx) -> None:
    """A commit that waits for the disk, for all before it."""
    tx.plain("UPDATE missions SET pruned_at = pruned_at WHERE id = (SELECT max(id) FROM missions)")


K = TypeVar("K")
Watch: TypeAlias = Callable[[], float]

SECONDS = {"sqlite": 0.002, "postgresql": 0.01}
"""How long a transaction runs. On PostgreSQL others do not wait for it, only for its share of the log."""
_PIECES = 4
"""A transaction has at least so many pieces, so that it ends in time: after the first one if others wait."""
_TICK = 1e-6
_MOST_KEYS = 2048
"""At once; large rows take longer, and then there are fewer."""
_BETWEEN_FLUSHES = 12
"""Transactions; together they leave less in the WAL than makes another writer's commit bring it into the file."""


@dataclass(frozen=True)
class Work(Generic[K]):
    """Rows to delete: `remove` is called with some of the keys after the other and returns how many rows it deleted."""

    keys: Sequence[K]
    remove: Callable[[Tx, Sequence[K]], int]


@contextmanager
def sweep(
    database: Database, watch: Watch = time.perf_counter, is_stopping: Callable[[], bool] = lambda: False
) -> Iterator[Sweep]:
    """Delete rows while others use the database, over a connection of its own; `watch` is a clock in seconds.

    What was removed is on the disk after the next `Database.write`; until then a power cut may bring some of it back.
    """
    own = Database(database.backend.sweeping(), database.now)
    own.writer_queue = database.writer_queue.for_another_thread()
    try:
        with database.explained():
            connection = own.backend.connect()
        with closing(connection) as flushing:
            yield Sweep(own, flushing, watch, is_stopping)
    finally:
        own.close()


class _Place(NamedTuple):
    """Where to continue: at a key of a work, with so many keys at once."""

    work: int
    key: int
    size: int


class Sweep:
    """Removes rows of one database; `sweep` makes it."""

    def __init__(
        self, database: Database, flushing: Connection, watch: Watch, is_stopping: Callable[[], bool]
    ) -> None:
        self._watch = watch
        self._is_stopping = is_stopping
        self._database = database
        self._flushing = flushing
        self._since_flush = 0
        self._seconds = SECONDS[database.backend.name]

    def remove(self, works: Sequence[Work[K]]) -> int:
        """Do all of it; the number of rows that went."""
        count, place = 0, _Place(0, 0, 1)
        while place.work < len(works) and not self._is_stopping():
            done, place = self._database.write(partial(self._go_on, works=works, place=place))
            count += done
            self._flush_at_times()
        return count

    def _go_on(self, tx: Tx, works: Sequence[Work[K]], place: _Place) -> tuple[int, _Place]:
        """Delete until the time is up; how many rows were deleted, and where to continue."""
        count, began = 0, self._watch()
        (work, key, size), until = place, began
        while work < len(works) and until - began < self._seconds:
            since, keys = until, works[work].keys
            if keys:
                count += works[work].remove(tx, keys[key : key + size])
            until = self._watch()
            work, key = (work, key + size) if key + size < len(keys) else (work + 1, 0)
            took = max(until - since, _TICK)
            size = max(1, min(_MOST_KEYS, 2 * size, int(size * self._seconds / _PIECES / took)))
            if self._database.writer_queue.has_waiters:
                break
        return count, _Place(work, key, size)

    def _flush_at_times(self) -> None:
        self._since_flush += 1
        if self._since_flush < _BETWEEN_FLUSHES:
            return
        self._since_flush = 0
        flush = self._database.backend.flush
        if flush(self._flushing):
            with self._database.writer_queue:  # others wrote little meanwhile
                flush(self._flushing)
