"""Query a database, with the calls of all features. Needs neither SQLAlchemy nor pydantic."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lcp_engine.api.kernel_history import KernelHistory
from lcp_engine.feature import available, load_all
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.db.open import find_version, open_database
from lcp_engine.store.host.liveness import digest_of, runtime_place
from lcp_engine.store.version import HEAD

if TYPE_CHECKING:
    from lcp_engine.features.decisions.calls import DecisionCalls
    from lcp_engine.features.notices.calls import DeliveryCalls
    from lcp_engine.features.plans.calls import GraphCalls
    from lcp_engine.features.reports.calls import ReportCalls

    class _Calls(GraphCalls, DecisionCalls, DeliveryCalls, ReportCalls): ...

else:

    class _Calls(*(calls for _, calls in load_all(available().history_calls, type)), KernelHistory):
        """The calls of the installed features."""


class History(_Calls):
    """The missions of a database and what they did. A context manager; its methods may be called from any thread."""


def open_history(
    url: str, *, busy_seconds: float, away_seconds: float | None, isolation: Isolation
) -> History:
    """The history in the database at `url`, which is created or upgraded as needed. Raises like `Engine`."""
    database = open_database(url, busy_seconds=busy_seconds, away_seconds=away_seconds)
    return History(database, isolation, runtime_place(url, os.environ))


def is_current(url: str, busy_seconds: float) -> bool:
    """True for a database that is there and at this engine's version. Raises `DATABASE_FAILED`, `DATABASE_VERSION`."""
    return find_version(url, busy_seconds) == HEAD


def upgrade_database(url: str, busy_seconds: float, *, force: bool) -> tuple[str | None, str]:
    """Create the database at `url`, or bring it to this engine's version; the versions before and after.

    `force` upgrades it beside live runners of the older version. Raises like `Engine`.
    """
    before = find_version(url, busy_seconds)
    open_database(url, busy_seconds=busy_seconds, force=force).close()
    return before, HEAD


def database_digest(url: str) -> str:
    """Name of a database among files of this user that belong to several."""
    return digest_of(url)
