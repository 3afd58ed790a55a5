"""Check that a database is whole, and measure it; neither changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import func, select

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.jobs import SETTLED, State
from lcp_engine.store.create import make_backend, tables_of, version_of
from lcp_engine.store.database import Database
from lcp_engine.store.schema import HEAD, changes, events, jobs, metadata, missions, plans
from lcp_engine.store.sqlite import BUSY_SECONDS, Sqlite
from lcp_engine.store.transaction import Tx

MOST_FAULTS = 100


@dataclass(frozen=True)
class TableSize:
    """How large a table is; bytes with its indexes, None where the database cannot tell."""

    name: str
    rows: int
    bytes: int | None


def find_version(url: str, busy_seconds: float = BUSY_SECONDS) -> str | None:
    """The version of the database at `url`; None where it is not there or empty."""
    backend = make_backend(url, busy_seconds)
    if isinstance(backend, Sqlite) and not (backend.path.is_file() and backend.path.stat().st_size):
        return None
    with _opened(url, busy_seconds) as database:
        return database.read(version_of)


def check_database(url: str, busy_seconds: float = BUSY_SECONDS) -> list[str]:
    """What is wrong with the database, a sentence each. Raises `DATABASE_FAILED` where there is none."""
    with _opened(url, busy_seconds) as database:
        broken = database.read(_broken_pages)
        if broken:
            return broken
        version = database.read(version_of)
        if version is None:
            return ["the database has to be lcp-engine's own; it is empty"]
        if version != HEAD:
            return [f"the database stands at version {version!r}, this engine at {HEAD!r}"]
        return database.read(_faults)[:MOST_FAULTS]


def try_writing(url: str, busy_seconds: float = BUSY_SECONDS) -> None:
    """Begin and end a transaction that could write. Raises `DATABASE_BUSY`, `DATABASE_FAILED` where none can."""
    with _opened(url, busy_seconds) as database:
        database.write(lambda tx: None)


def measure(url: str, busy_seconds: float = BUSY_SECONDS) -> list[TableSize]:
    """The size of every table. Raises `DATABASE_FAILED` where there is no database."""
    with _opened(url, busy_seconds) as database:
        return database.read(_sizes)


@contextmanager
def _opened(url: str, busy_seconds: float) -> Iterator[Database]:
    """The database as it is: nothing is created or upgraded."""
    backend = make_backend(url, busy_seconds)
    if isinstance(backend, Sqlite) and not backend.path.is_file():
        message = f"database {backend.path} has to be a file; it is not there"
        raise LcpError(ErrorCode.DATABASE_FAILED, message)
    database = Database(backend)
    try:
        yield database
    finally:
        database.close()


def _broken_pages(tx: Tx) -> list[str]:
    if not tx.is_sqlite:
        return []
    found = [str(row[0]) for row in tx.query_plain(f"PRAGMA integrity_check({MOST_FAULTS})")]
    return [] if found == ["ok"] else [f"the file is damaged: {fault}" for fault in found]


def _faults(tx: Tx) -> list[str]:
    return [
        *_broken_references(tx),
        *_event_gaps(tx),
        *_wrong_mission_counters(tx),
        *_wrong_plan_counters(tx),
        *_open_intents(tx),
    ]


def _broken_references(tx: Tx) -> Iterator[str]:
    if tx.is_sqlite:
        for table, row, parent, _ in tx.query_plain("PRAGMA foreign_key_check"):
            yield f"row {row} of {table} refers to a row of {parent} that is not there"


def _event_gaps(tx: Tx) -> Iterator[str]:
    """Events are numbered from 1 without gaps, and the mission counts them (R19)."""
    found = tx.query(
        select(events.c.mission_id, func.count(), func.min(events.c.seq), func.max(events.c.seq)).group_by(
            events.c.mission_id
        )
    )
    stored = {mission: (count, first, last) for mission, count, first, last in found}
    for mission, counted in tx.query(select(missions.c.id, missions.c.events).order_by(missions.c.id)):
        count, first, last = stored.get(mission, (0, 1, 0))
        if first != 1 or last != count:
            yield f"mission {mission}: {count} events should be numbered 1 to {count}; they run from {first} to {last}"
        if counted != count:
            yield f"mission {mission}: it counts {counted} events; there are {count}"


def _wrong_mission_counters(tx: Tx) -> Iterator[str]:
    found = tx.query(
        select(jobs.c.mission_id, jobs.c.state, func.count()).group_by(jobs.c.mission_id, jobs.c.state)
    )
    there = {(mission, state): count for mission, state, count in found}
    columns = [missions.c[state.value] for state in State]
    for mission, *counts in tx.query(select(missions.c.id, *columns).order_by(missions.c.id)):
        for state, counted in zip(State, counts, strict=True):
            count = there.get((mission, state.value), 0)
            if counted != count:
                yield f"mission {mission}: it counts {counted} {state} jobs; there are {count}"


def _wrong_plan_counters(tx: Tx) -> Iterator[str]:
    found = tx.query(
        select(jobs.c.plan_id, jobs.c.state, func.count())
        .where(jobs.c.plan_id.is_not(None))
        .group_by(jobs.c.plan_id, jobs.c.state)
    )
    there = {(plan, state): count for plan, state, count in found}
    for plan, opened, held in tx.query(select(plans.c.id, plans.c.open, plans.c.held).order_by(plans.c.id)):
        is_open = sum(
            there.get((plan, state.value), 0) for state in (State.QUEUED, State.RUNNING, State.BLOCKED)
        )
        for word, counted, count in (("open", opened, is_open), ("held", held, there.get((plan, "held"), 0))):
            if counted != count:
                yield f"plan {plan}: it counts {counted} {word} jobs; there are {count}"


def _open_intents(tx: Tx) -> Iterator[str]:
    """Whoever works next closes them, unless their directory cannot be reached (R20)."""
    found = tx.query(
        select(changes.c.id, changes.c.file, jobs.c.id, jobs.c.state)
        .join_from(changes, jobs, changes.c.job_id == jobs.c.id)
        .where(changes.c.state == "intent", jobs.c.state.in_(sorted(SETTLED)))
        .order_by(changes.c.id)
    )
    for change, file, job, state in found:
        yield f"change {change}: job {job} is {state}, so its intent to write {file!r} should be closed; it is open"


def _sizes(tx: Tx) -> list[TableSize]:
    if version_of(tx) is None:
        raise LcpError(ErrorCode.DATABASE_VERSION, "the database has to be lcp-engine's own; it is empty")
    taken, there = _bytes(tx), set(tables_of(tx))
    return [
        TableSize(table.name, tx.query(select(func.count()).select_from(table))[0][0], taken.get(table.name))
        for table in metadata.sorted_tables
        if table.name in there
    ]


def _bytes(tx: Tx) -> dict[str, int]:
    if not tx.is_sqlite:
        sql = "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r'"
        return {str(name): int(size) for name, size in tx.query_plain(sql)}
    if not tx.query_plain("SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'"):
        return {}  # SQLite may be built without it
    sql = "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
    return {str(name): int(size) for name, size in tx.query_plain(sql)}
