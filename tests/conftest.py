"""Give a test a database of its own: once a SQLite file, once a PostgreSQL database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

SERVER = os.environ.get("LCP_TEST_POSTGRES_URL")
REQUIRED = bool(os.environ.get("LCP_TEST_REQUIRE_POSTGRES"))

EXAMPLES = os.environ.get("LCP_TEST_EXAMPLES")
"""How many examples each property is tried with; without it, the same few every time."""

# A machine that is busy with other things is slow, and no property is broken by that.
settings.register_profile(
    "few", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "many", settings.get_profile("few"), derandomize=False, max_examples=int(EXAMPLES or 1)
)
settings.load_profile("many" if EXAMPLES else "few")


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the user's settings or opens the user's database."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LCP_")]:
            patch.delenv(name)
        for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database; every test of the store runs on both kinds."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path)
    else:
        yield from postgres_database()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of an empty PostgreSQL database, for what only PostgreSQL does."""
    yield from postgres_database()


@pytest.fixture(scope="session")
def shared_postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL database for many tests: creating one takes longer than most of them. They empty it.

    Its commits do not wait for the disk: nothing that uses it cuts the power.
    """
    for url in postgres_database():
        _on_server(f"ALTER DATABASE {make_url(url).database} SET synchronous_commit = off")
        yield url


def sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory / 'lcp.db'}"


def postgres_database() -> Iterator[str]:
    if SERVER is None:
        reason = "LCP_TEST_POSTGRES_URL is not set; `tools/postgres pytest` starts a server"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    # A database, not a schema: the channels of LISTEN and NOTIFY belong to a database.
    name = f"lcp_test_{uuid4().hex}"
    _on_server(f"CREATE DATABASE {name}")
    try:
        yield make_url(SERVER).set(database=name).render_as_string(hide_password=False)
    finally:
        # Runners that a test killed may have left connections.
        _on_server(f"DROP DATABASE {name} WITH (FORCE)")


def _on_server(statement: str) -> None:
    assert SERVER is not None
    engine = create_engine(SERVER, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
