"""Give a test of the store an open database and books in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

import pytest

from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import open_database

T = TypeVar("T")
Open: TypeAlias = Callable[[], Database]


@pytest.fixture
def open_another(database_url: str) -> Iterator[Open]:
    """Opens the test's database as another process would."""
    opened: list[Database] = []

    def open_one() -> Database:
        opened.append(open_database(database_url))
        return opened[-1]

    yield open_one
    for database in opened:
        database.close()


@pytest.fixture
def database(open_another: Open) -> Database:
    return open_another()
