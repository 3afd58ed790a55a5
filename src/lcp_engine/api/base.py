"""Hold what the parts of the engine stand on: the database with its books, the workers, who is asking."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from typing import TypeVar

from lcp_engine.engine.instance import Site
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.workers.base import Workers

T = TypeVar("T")


class Sited:
    """What the parts of `Engine` share."""

    site: Site

    @property
    def workers(self) -> Workers:
        """What executes each kind of job."""
        return self.site.bench.workers

    def _read(self, find: Callable[[Tx], T]) -> T:
        return self.site.database.read(find)

    def _books(self, work: Callable[[Ledger], T]) -> T:
        return self.site.database.write(lambda tx: work(ledger_of(tx)))


def user_name() -> str:
    """Who is asking, where nobody says so."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
