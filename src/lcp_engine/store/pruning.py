"""Remove what ended long ago, in short transactions (`lcp db prune`).

A mission is marked first, which takes it out of every view and away from everybody who would change it; then its rows
go in chunks, the events last. An interrupted prune is finished by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lcp_engine.clock import Micros
from lcp_engine.store.changes import changed_paths
from lcp_engine.store.database import Database
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.transaction import Tx

CHUNK = 1000
"""Rows of one table in one transaction."""

_PRUNED = "(SELECT id FROM missions WHERE pruned_at IS NOT NULL)"
_SETTLED = "queued = 0 AND running = 0 AND blocked = 0 AND held = 0"
_UNREFERENCED = "NOT EXISTS (SELECT 1 FROM changes c WHERE c.sha256_before = blobs.sha256)"


@dataclass(frozen=True)
class Pruned:
    """What went, or would go. `kept_for_undo` missions were left because somebody may take back what they changed."""

    missions: int = 0
    kept_for_undo: int = 0
    rows: int = 0
    contents: int = 0

    def more(self, *, rows: int = 0, contents: int = 0) -> Pruned:
        return replace(self, rows=self.rows + rows, contents=self.contents + contents)


def prune(
    database: Database, *, ended_before: Micros, keep: int = 0, preimages: bool = False, dry_run: bool = False
) -> Pruned:
    """Remove the missions that ended before a time and have nothing open, and contents that nobody refers to.

    The `keep` missions that ended last stay, and so do those whose changes of files could still be undone, unless
    `preimages` says that these may go too. Their ids and keys are never used again.
    """
    wanted, kept = database.read(
        lambda tx: choose(tx, ended_before=ended_before, keep=keep, preimages=preimages)
    )
    pruned = Pruned(len(wanted), kept)
    if dry_run:
        return pruned
    for at in range(0, len(wanted), CHUNK):
        database.write(partial(_mark, missions=wanted[at : at + CHUNK]))
    for mission, events in database.read(_marked):
        pruned = pruned.more(rows=_remove_changes(database, mission))
        pruned = pruned.more(rows=_remove_numbered(database, "turns", "number", mission, events))
    pruned = pruned.more(rows=_remove_jobs(database))
    for mission, events in database.read(_marked):
        pruned = pruned.more(
            rows=database.write(partial(_run, sql=f"DELETE FROM plans WHERE mission_id = {mission}"))
        )
        pruned = pruned.more(rows=_remove_numbered(database, "events", "seq", mission, events))
    return pruned.more(contents=_remove_contents(database))


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


def _mark(tx: Tx, missions: Sequence[int]) -> None:
    """Those that somebody has begun again meanwhile stay."""
    ledger = ledger_of(tx)
    ledger.lock(missions)
    for mission_id in missions:
        mission = ledger.mission(mission_id)
        if mission.has_ended and mission.open == 0 and mission.held == 0:
            tx.plain(
                f"UPDATE missions SET pruned_at = {tx.now}, spec = '{{}}', summary = NULL, deliverables = NULL, "
                f"metrics = NULL, error = NULL, root_plan = NULL WHERE id = {mission_id}"
            )


def _marked(tx: Tx) -> list[tuple[int, int]]:
    """Missions whose rows are not gone yet, with the number of their last event: an earlier prune may have stopped."""
    rows = tx.query_plain(
        "SELECT id, events FROM missions m WHERE pruned_at IS NOT NULL "
        "AND EXISTS (SELECT 1 FROM events e WHERE e.mission_id = m.id) ORDER BY id"
    )
    return [(row[0], row[1]) for row in rows]


def _remove_changes(database: Database, mission: int) -> int:
    count = 0
    while True:
        some = f"SELECT id FROM changes WHERE mission_id = {mission} ORDER BY id LIMIT {CHUNK}"
        gone = database.write(partial(_run, sql=f"DELETE FROM changes WHERE id IN ({some})"))
        count += gone
        if gone < CHUNK:
            return count


def _remove_numbered(database: Database, table: str, number: str, mission: int, last: int) -> int:
    step = CHUNK * 3
    return sum(
        database.write(
            partial(
                _run,
                sql=f"DELETE FROM {table} WHERE mission_id = {mission} AND {number} > {at} AND {number} <= {at + step}",
            )
        )
        for at in range(0, last, step)
    )


def _remove_jobs(database: Database) -> int:
    return sum(
        database.write(partial(_remove_range, first=first, last=last))
        for first, last in _job_ranges(database)
    )


def _job_ranges(database: Database) -> Iterator[tuple[int, int]]:
    """The first and last id of each chunk of jobs that go; they are looked for without holding up writers."""
    after = 0
    while True:
        sql = f"SELECT id FROM jobs WHERE id > {after} AND mission_id IN {_PRUNED} ORDER BY id LIMIT {CHUNK}"
        found = database.read(partial(_query, sql=sql))
        if not found:
            return
        after = found[-1]
        yield found[0], after


def _remove_range(tx: Tx, first: int, last: int) -> int:
    ids = f"SELECT id FROM jobs WHERE id BETWEEN {first} AND {last} AND mission_id IN {_PRUNED}"
    tables = ("attempts", "reviews", "approvals")
    of_jobs = sum(_run(tx, f"DELETE FROM {table} WHERE job_id IN ({ids})") for table in tables)
    return of_jobs + _run(
        tx, f"DELETE FROM jobs WHERE id BETWEEN {first} AND {last} AND mission_id IN {_PRUNED}"
    )


def _remove_contents(database: Database) -> int:
    sql = f"SELECT sha256 FROM blobs WHERE {_UNREFERENCED} ORDER BY sha256"
    hashes = database.read(lambda tx: [str(row[0]) for row in tx.query_plain(sql)])
    some = CHUNK // 10
    return sum(
        database.write(partial(_remove_hashes, hashes=hashes[at : at + some]))
        for at in range(0, len(hashes), some)
    )


def _remove_hashes(tx: Tx, hashes: Sequence[str]) -> int:
    """Somebody may refer to one of them by now."""
    named = ", ".join(f"'{sha}'" for sha in hashes)
    if not tx.is_sqlite:  # whoever is about to refer to one of them comes first
        rows = tx.query_plain(f"SELECT sha256 FROM blobs WHERE sha256 IN ({named}) FOR UPDATE SKIP LOCKED")
        named = ", ".join(f"'{row[0]}'" for row in rows)
    return _run(tx, f"DELETE FROM blobs WHERE sha256 IN ({named}) AND {_UNREFERENCED}") if named else 0


def _query(tx: Tx, sql: str) -> list[int]:
    return [row[0] for row in tx.query_plain(sql)]


def _run(tx: Tx, sql: str) -> int:
    return tx.run_plain(sql)
