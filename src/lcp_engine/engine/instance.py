"""Open what a process works with: the database, the workers, the bell, a place for locks and sockets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, JsonValue

from lcp_engine.clock import Clock, system_clock
from lcp_engine.core.policy import Rule
from lcp_engine.engine.endpoint_probes import StoredProbes
from lcp_engine.engine.jobs.admission import Bench
from lcp_engine.planners.environment import NOWHERE, Surroundings
from lcp_engine.sandbox.isolation_mode import Isolation
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import make_backend, open_database
from lcp_engine.store.db.sqlite import BUSY_SECONDS, Sqlite
from lcp_engine.store.db.transaction import Backend
from lcp_engine.store.host.liveness import runtime_directory
from lcp_engine.store.host.wakeup import Bell, make_bell
from lcp_engine.store.host.writer_queue import make_line
from lcp_engine.workers.base import Caps, Worker
from lcp_engine.workers.registry import find_workers


@dataclass(frozen=True)
class Site:
    """What producers and runners of one process share. Schedules go by `clock`."""

    database: Database
    bench: Bench
    bell: Bell
    runtime: Path
    caps: Caps = field(default_factory=Caps)
    surroundings: Surroundings = NOWHERE
    on_wait: tuple[str, ...] = ()
    isolation: Isolation = Isolation.OFF
    clock: Clock = system_clock


def open_site(
    url: str,
    *,
    workers: Sequence[Worker[BaseModel]] = (),
    user_rules: Sequence[Rule] = (),
    caps: Caps | None = None,
    clock: Clock | None = None,
    busy_seconds: float = BUSY_SECONDS,
    planners: Mapping[str, Mapping[str, JsonValue]] | None = None,
    on_wait: Sequence[str] = (),
    isolation: Isolation = Isolation.OFF,
) -> Site:
    """Open the database at `url`, created or upgraded as needed.

    Raises `DATABASE_VERSION`, `DATABASE_FAILED`, and `INVALID_ARGUMENT` for a worker whose kind is taken or is none.
    """
    found = find_workers(workers)
    database = open_database(url, clock, busy_seconds)
    runtime = runtime_directory(identity_of(url), os.environ)
    if isinstance(database.backend, Sqlite):
        database.line = make_line(runtime / "writers.line", busy_seconds) or database.line
    bell = make_bell(database, runtime)
    bell.attach(database)
    return Site(
        database,
        Bench(found, tuple(user_rules), _engine_files(database.backend)),
        bell,
        runtime,
        caps or Caps(),
        Surroundings(planners or {}, StoredProbes(database)),
        tuple(on_wait),
        isolation,
        clock or system_clock,
    )


def identity_of(url: str) -> str:
    """What all processes over one database call it: the file after links, or the URL."""
    backend = make_backend(url)
    return str(backend.path.resolve()) if isinstance(backend, Sqlite) else url


def _engine_files(backend: Backend) -> tuple[str, ...]:
    """The database's own files, which no job may touch."""
    if not isinstance(backend, Sqlite):
        return ()
    path = str(backend.path.resolve())
    return (path, f"{path}-wal", f"{path}-shm")
