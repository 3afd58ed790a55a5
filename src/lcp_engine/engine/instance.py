"""The resources that one process shares: database, workers, wake-up channel, runtime directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pydantic import BaseModel, JsonValue

from lcp_engine.clock import Clock, system_clock
from lcp_engine.core.policy import Rule
from lcp_engine.core.settings.feature_settings import FeatureSettings, S, settings_in
from lcp_engine.engine.admission import Admission, with_kinds
from lcp_engine.engine.points import load_points, note_waits
from lcp_engine.feature import added, load
from lcp_engine.planners.base import Planner
from lcp_engine.planners.environment import (
    EMPTY_ENVIRONMENT,
    Drafts,
    Factory,
    MemoryProbeCache,
    PlannerEnvironment,
    ProbeCache,
)
from lcp_engine.planners.registry import own_planners
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.sandbox.system.own_places import own_places, protect
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import make_backend, open_database
from lcp_engine.store.db.sqlite import BUSY_SECONDS, Sqlite
from lcp_engine.store.db.transaction import Backend, Tx
from lcp_engine.store.host.liveness import (
    backups_directory,
    place_beside,
    runtime_directory,
    stages_directory,
    wall_directory,
)
from lcp_engine.store.host.roots import Roots
from lcp_engine.store.host.shared_clock import open_shared_clock
from lcp_engine.store.host.wakeup import Notifier, make_notifier
from lcp_engine.store.host.writer_queue import open_writer_queue
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.workers.base import Caps, Worker
from lcp_engine.workers.registry import find_workers

if TYPE_CHECKING:
    from lcp_engine.core.limits.prices import Prices

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of an engine; `lcp_engine.Engine` documents each field."""

    workers: Sequence[Worker[BaseModel]] = ()
    user_rules: Sequence[Rule] = ()
    caps: Caps = field(default_factory=Caps)
    clock: Clock | None = None
    busy_seconds: float = BUSY_SECONDS
    away_seconds: float | None = None
    planners: Mapping[str, Mapping[str, JsonValue] | Planner | Factory] = field(default_factory=dict)
    prices: Prices | None = None
    isolation: Isolation = Isolation.OFF
    settings: Sequence[FeatureSettings] = ()


@dataclass(frozen=True)
class Instance:
    """Everything that the producers and runners of one process share. Schedules go by `clock`."""

    database: Database
    admission: Admission
    notifier: Notifier
    runtime: Path
    caps: Caps = field(default_factory=Caps)
    planner_environment: PlannerEnvironment = EMPTY_ENVIRONMENT
    options: Options = field(default_factory=Options)
    isolation: Isolation = Isolation.OFF
    clock: Clock = system_clock
    url: str = ""
    stages: Path | None = None
    """Where the stages of missions are on this machine; None has them work in their roots, which a replay does."""
    walls: Path | None = None
    """Where what commands see and leave is kept on this machine; None keeps nothing between commands."""

    def settings(self, model: type[S]) -> S:
        """The settings of a feature: as they are stated, or its defaults."""
        return settings_in(self.options.settings, model)

    def read(self, query: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `query(tx, …)`, all of it read from one state of the database."""
        return self.database.read(lambda tx: query(tx, *args, **kwargs))

    def write(self, use_case: Callable[Concatenate[Ledger, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `use_case(ledger, …)` in a transaction, and return its result once that is committed.

        The transaction may be shared and repeated: a use case has no effects besides its statements.
        """
        return self.database.write(lambda tx: use_case(ledger_of(tx), *args, **kwargs))

    def roots(self, named: Mapping[str, Path] | None = None) -> Roots:
        """Where roots are on this machine; a SQLite database has one machine, so that no other one could serve them."""
        return Roots(named or {}, only_here=isinstance(self.database.backend, Sqlite))

    def close(self) -> None:
        self.database.close()
        self.notifier.close()


def open_instance(url: str, options: Options) -> Instance:
    """Open the database at `url`, created or upgraded as needed.

    Raises `DATABASE_VERSION`, `DATABASE_FAILED`, and `INVALID_ARGUMENT` for a worker whose kind is taken or malformed,
    for a planner whose name is taken or that has no `answer`, and for a place that commands must not read.
    """
    load_points()
    workers = find_workers(options.workers)
    for one in options.settings:
        one.refuse()
        for path in one.protected():
            protect(Path(path).expanduser())
    stated = {name: one for name, one in options.planners.items() if isinstance(one, Mapping)}
    own = own_planners({name: one for name, one in options.planners.items() if name not in stated})
    database = open_database(url, options.clock, options.busy_seconds, options.away_seconds)
    runtime = runtime_directory(url, os.environ)
    if isinstance(database.backend, Sqlite):
        database.writer_queue = open_writer_queue(runtime / "writers.line") or database.writer_queue
        if options.clock is None and (shared := open_shared_clock(runtime / "clock")) is not None:
            database.follow(shared, shared.close)
    notifier = make_notifier(database, runtime)
    notifier.attach(database)
    database.before_waiting_commit = note_waits(options.settings)
    return Instance(
        database,
        Admission(
            workers,
            with_kinds(options.user_rules, workers),
            (
                *_engine_files(database.backend),
                str(runtime.resolve()),
                str(stages_directory(url).parent.resolve()),
                str(wall_directory(url).parent.resolve()),
                str(backups_directory(database.backend, None).resolve()),
            ),
            tuple(options.settings),
        ),
        notifier,
        runtime,
        options.caps,
        PlannerEnvironment(stated, _probes(database), options.prices, own, _drafts(database)),
        options,
        options.isolation,
        options.clock or system_clock,
        url,
        stages_directory(url),
        wall_directory(url),
    )


def _probes(database: Database) -> ProbeCache:
    place = added().probes
    return MemoryProbeCache() if place is None else load(place, type)(database)


def _drafts(database: Database) -> Drafts | None:
    place = added().drafts
    return None if place is None else load(place, type)(database)


def admission_for(url: str | None, user_rules: Sequence[Rule]) -> Admission:
    """Admission of jobs, without opening the database, if there is one. Raises like `open_instance`."""
    own = own_places() if url is None else _engine_files(make_backend(url))
    workers = find_workers()
    return Admission(workers, with_kinds(user_rules, workers), own)


def _engine_files(backend: Backend) -> tuple[str, ...]:
    """The database's own files and the engine's own directories, which no job may touch."""
    directories = own_places()
    if not isinstance(backend, Sqlite):
        return directories
    path = backend.path.resolve()
    beside = (f"{path}{suffix}" for suffix in ("-wal", "-shm", "-journal"))
    return (str(path), *beside, str(place_beside(path)), *directories)
