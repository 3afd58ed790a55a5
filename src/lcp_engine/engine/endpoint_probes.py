"""Remember for planners what they have found out about endpoints."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import LcpError
from lcp_engine.store.db.database import Database
from lcp_engine.store.endpoint_probes import find_probe, forget_probe, keep_probe

LASTING: Micros = 7 * 24 * 3600 * SECOND
"""How long a find holds: servers are upgraded, and may honour more than they did."""


@dataclass(frozen=True)
class StoredProbes:
    """Probes in the database. They spare requests, and nothing depends on them: where it is busy, nothing is known."""

    database: Database

    def find(self, endpoint: str, model: str, /) -> str | None:
        since = self.database.now() - LASTING
        with suppress(LcpError):
            return self.database.read(lambda tx: find_probe(tx, endpoint, model, since=since))
        return None

    def keep(self, endpoint: str, model: str, found: str, /) -> None:
        with suppress(LcpError):
            self.database.write(lambda tx: keep_probe(tx, endpoint, model, found))

    def forget(self, endpoint: str, model: str, /) -> None:
        with suppress(LcpError):
            self.database.write(lambda tx: forget_probe(tx, endpoint, model))
