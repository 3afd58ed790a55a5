"""Report what a database holds and how large it is.

The counters of missions answer most of it: as fast with a million jobs as with ten.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lcp_engine.clock import iso
from lcp_engine.core.job_states import State
from lcp_engine.store.conditions import WAITING
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.sqlite import Sqlite
from lcp_engine.store.db.transaction import Tx

_BY_STATUS = (
    "SELECT status, pruned_at IS NOT NULL, count(*), min(created_at), "
    f"{', '.join(f'sum({state})' for state in State)} FROM missions GROUP BY 1, 2 ORDER BY 1"
)
_WAITING = f"SELECT limited_by, count(*) FROM jobs WHERE {WAITING} GROUP BY 1 ORDER BY 1"
_CONTENTS = (
    "SELECT count(*), coalesce(sum(length(data)), 0), (SELECT coalesce(sum(b.size), 0) FROM changes c "
    "JOIN blobs b ON b.sha256 = c.sha256_before) FROM blobs"
)


@dataclass(frozen=True)
class Overview:
    """Missions by status, jobs by state, and when the oldest mission that was not pruned was made (ISO 8601).

    `waiting` are queued jobs without a permit, by the limit that they wait for. `contents` are kept; `content_bytes`
    counts each change's content before, `stored_bytes` what is stored of all of them: once each, and compressed.
    `bytes` is the size of the database, `free_bytes` what of it will be used again and `wal_bytes` what is not
    checkpointed yet; both are None on PostgreSQL.
    """

    missions: dict[str, int]
    pruned: int
    jobs: dict[str, int]
    oldest_mission: str | None
    waiting: dict[str, int]
    contents: int
    content_bytes: int
    stored_bytes: int
    bytes: int
    free_bytes: int | None
    wal_bytes: int | None


def overview(database: Database) -> Overview:
    """Contents of the database, counted."""
    wal = _wal_bytes(database.backend.path) if isinstance(database.backend, Sqlite) else None
    return database.read(lambda tx: overview_in(tx, wal))


def overview_in(tx: Tx, wal_bytes: int | None) -> Overview:
    """Like `overview` in a transaction."""
    by_status = tx.query_plain(_BY_STATUS)
    kept = [row for row in by_status if not row[1]]
    jobs = (sum(counts) for counts in zip(*(row[4:] for row in kept), strict=True))
    contents, stored, referred = tx.query_plain(_CONTENTS)[0]
    whole, free = _bytes(tx)
    return Overview(
        missions={row[0]: row[2] for row in kept},
        pruned=sum(row[2] for row in by_status if row[1]),
        jobs={state.value: count for state, count in zip(State, jobs, strict=False) if count},
        oldest_mission=iso(min(row[3] for row in kept)) if kept else None,
        waiting={row[0]: row[1] for row in tx.query_plain(_WAITING)},
        contents=contents,
        content_bytes=int(referred),
        stored_bytes=int(stored),
        bytes=whole,
        free_bytes=free,
        wal_bytes=wal_bytes,
    )


def _bytes(tx: Tx) -> tuple[int, int | None]:
    if not tx.is_sqlite:
        return int(tx.query_plain("SELECT pg_database_size(current_database())")[0][0]), None
    size, pages, free = (
        int(tx.query_plain(f"PRAGMA {pragma}")[0][0])
        for pragma in ("page_size", "page_count", "freelist_count")
    )
    return size * pages, size * free


def _wal_bytes(database: Path) -> int:
    try:
        return database.with_name(f"{database.name}-wal").stat().st_size
    except FileNotFoundError:
        return 0
