"""Find what weakens the promise that an acknowledged commit is on disk, and stays there."""

from __future__ import annotations

from dataclasses import dataclass

from lcp_engine.sandbox.system.file_systems import shared_file_system
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import opened
from lcp_engine.store.db.sqlite import BUSY_SECONDS, Sqlite
from lcp_engine.store.db.transaction import Tx

_NEEDED = {
    "fsync": "a power cut or a crash of the system may lose or damage what was committed",
    "full_page_writes": "a power cut or a crash of the system may damage pages that were being written",
}


@dataclass(frozen=True)
class Weakness:
    """A setting or a place that weakens the promise, and what to do about it."""

    fact: str
    advice: str


def weaknesses(url: str, busy_seconds: float = BUSY_SECONDS) -> list[Weakness]:
    """Settings that weaken the database at `url`. Raises `DATABASE_FAILED` if there is none."""
    with opened(url, busy_seconds) as database:
        return _of_file(database.backend) if isinstance(database.backend, Sqlite) else _of_server(database)


def _of_file(backend: Sqlite) -> list[Weakness]:
    shared = shared_file_system(backend.path)
    if shared is None:
        return []
    fact = f"{backend.path} is on {shared}, where SQLite's locks may exclude nobody on another machine"
    advice = "Keep it on a local disk, or use PostgreSQL for several machines."
    return [Weakness(fact, advice)]


def _of_server(database: Database) -> list[Weakness]:
    off = database.read(_switched_off)
    return [
        Weakness(f"{name} of the server is off: {_NEEDED[name]}", f"Set {name} = on in postgresql.conf.")
        for name in off
    ]


def _switched_off(tx: Tx) -> list[str]:
    return [name for name in _NEEDED if tx.query_plain(f"SHOW {name}")[0][0] == "off"]
