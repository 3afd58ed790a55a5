"""Examine the database and its runtime directory, for `lcp doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from lcp_engine.cli.console.output import guarded
from lcp_engine.core.health import Finding, Grade, broken, doubtful, well
from lcp_engine.errors import GENERAL, ErrorCode, Failed
from lcp_engine.features.check.store.durability import weaknesses
from lcp_engine.features.check.store.examination import check_database, try_writing
from lcp_engine.sandbox.system.file_systems import shared_file_system
from lcp_engine.settings import Settings, shown_url
from lcp_engine.store.db.open import find_version, make_backend
from lcp_engine.store.db.sqlite import Sqlite
from lcp_engine.store.host.liveness import runtime_directory
from lcp_engine.store.version import HEAD


def examine_database(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """Its version and its faults, and what weakens its promises. Nothing is created."""
    return guarded("database", lambda: _database(url, settings.busy_seconds))


def examine_runtime(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """The directory in which runners of this machine know each other, which is created."""
    return guarded("runtime directory", lambda: _runtime(url))


def _database(url: str, busy_seconds: float) -> Iterator[Finding]:
    version, shown = find_version(url, busy_seconds), shown_url(url)
    if version is None:
        yield _new_database(url, shown)
        return
    if version != HEAD:
        if version > HEAD:
            fact = f"{shown} has version {version}; this engine knows versions up to {HEAD}"
            yield broken("database", Failed(ErrorCode.DATABASE_VERSION, fact, advice=GENERAL))
        else:
            fact = f"{shown} has version {version}; this engine uses {HEAD}"
            yield doubtful("database", fact, "The next command upgrades it; `lcp db upgrade` does it now.")
        return
    faults = check_database(url, busy_seconds)
    if faults:
        yield Finding("database", Grade.FAIL, f"{shown}: {faults[0]}", "`lcp db check` lists every fault.")
        return
    try_writing(url, busy_seconds)
    yield well("database", f"{shown} is consistent, writable, at version {version}")
    for weakness in weaknesses(url, busy_seconds):
        yield doubtful("durability", weakness.fact, weakness.advice)


def _new_database(url: str, shown: str) -> Finding:
    backend = make_backend(url)
    place = backend.path.parent if isinstance(backend, Sqlite) else None
    if place is not None and not os.access(place, os.W_OK | os.X_OK):
        return broken(
            "database",
            Failed(
                ErrorCode.FILE_SYSTEM,
                f"{place} is not writable; {shown} is created there",
                advice="Make it writable, or name another database with --db or LCP_DATABASE_URL.",
            ),
        )
    return well("database", f"{shown} does not exist yet; the first command creates it")


def _runtime(url: str) -> Iterator[Finding]:
    directory = runtime_directory(url, os.environ)
    yield well("runtime directory", str(directory))
    shared = shared_file_system(directory)
    if shared is not None:
        fact = f"{directory} is on {shared}; whether a runner of this machine is alive is known by its locks there"
        yield doubtful(
            "runtime directory",
            fact,
            "Keep a SQLite file on a local disk; for PostgreSQL, name a local directory with XDG_RUNTIME_DIR.",
        )
