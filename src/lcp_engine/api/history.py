"""Query a database, with the calls of all features. Needs neither SQLAlchemy nor pydantic."""

from __future__ import annotations

import os

from lcp_engine.api.deliveries import DeliveryCalls
from lcp_engine.api.plan_graphs import GraphCalls
from lcp_engine.api.reports_of import ReportCalls
from lcp_engine.sandbox.landlock import Isolation
from lcp_engine.store.db.open import open_database
from lcp_engine.store.host.liveness import runtime_place


class History(GraphCalls, DeliveryCalls, ReportCalls):
    """The missions of a database and what they did. A context manager; its methods may be called from any thread."""


def open_history(
    url: str, *, busy_seconds: float, away_seconds: float | None, isolation: Isolation
) -> History:
    """The history in the database at `url`, which is created or upgraded as needed. Raises like `Engine`."""
    database = open_database(url, busy_seconds=busy_seconds, away_seconds=away_seconds)
    return History(database, isolation, runtime_place(url, os.environ))
