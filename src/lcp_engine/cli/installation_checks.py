"""Examine what the engine stands on: the database, the runtime directory, the root and its protections."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from lcp_engine.core.health import Finding, Grade, broken, doubtful, well
from lcp_engine.engine.instance import identity_of
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.sandbox.root import Root
from lcp_engine.store.db.open import make_backend
from lcp_engine.store.db.sqlite import Sqlite
from lcp_engine.store.host.liveness import runtime_directory
from lcp_engine.store.maintenance.check import check_database, find_version, try_writing
from lcp_engine.store.schema import HEAD

BUSY_SECONDS = 3.0
"""How long the examination waits for a database that is locked."""


def examine_installation(url: str, shown_url: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    """What is found about the database at `url` and its runtime directory; nothing is created but that directory."""
    yield from _guarded("database", lambda: _database(url, shown_url))
    yield from _guarded("runtime directory", lambda: _runtime(url, environment))


def examine_root(path: Path) -> Iterator[Finding]:
    """What is found about a mission's root, and what keeps jobs inside it."""
    yield from _guarded("root", lambda: _root(path))


def _guarded(about: str, examine: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from examine()
    except LcpError as error:
        yield broken(about, error.failed)
    except OSError as refused:
        yield broken(about, Failed(ErrorCode.FILE_SYSTEM, f"{refused.filename}: {refused.strerror}"))


def _database(url: str, shown: str) -> Iterator[Finding]:
    version = find_version(url, BUSY_SECONDS)
    if version is None:
        yield _new_database(url, shown)
        return
    if version != HEAD:
        if version > HEAD:
            fact = f"{shown} stands at version {version}, this engine knows up to {HEAD}"
            yield broken("database", Failed(ErrorCode.DATABASE_VERSION, fact))
        else:
            fact = f"{shown} stands at version {version}, this engine at {HEAD}"
            yield doubtful("database", fact, "The next command upgrades it; `lcp db upgrade` does so now.")
        return
    faults = check_database(url, BUSY_SECONDS)
    if faults:
        yield Finding("database", Grade.FAIL, f"{shown}: {faults[0]}", "`lcp db check` names every fault.")
        return
    try_writing(url, BUSY_SECONDS)
    yield well("database", f"{shown} is whole, writable, at version {version}")


def _new_database(url: str, shown: str) -> Finding:
    backend = make_backend(url)
    place = backend.path.parent if isinstance(backend, Sqlite) else None
    if place is not None and not os.access(place, os.W_OK | os.X_OK):
        return broken(
            "database", Failed(ErrorCode.FILE_SYSTEM, f"{place} has to be writable for {shown}; it is not")
        )
    return well("database", f"{shown} is not there yet; the first command creates it")


def _runtime(url: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    yield well("runtime directory", str(runtime_directory(identity_of(url), environment)))


def _root(path: Path) -> Iterator[Finding]:
    with Root(path) as root:
        yield (
            well("root", root.path)
            if os.access(root.path, os.W_OK)
            else doubtful(
                "root", f"{root.path} can be read and not written", "Missions that write need its permission."
            )
        )
        if root.kernel:
            yield well("confinement", "the kernel resolves every path beneath the root (openat2)")
        else:
            fact = "a walk without links resolves every path: this kernel has no openat2"
            yield doubtful(
                "confinement", fact, "It is as safe, and slower; links within the root are refused."
            )
