"""Upgrade a database of an older engine with alembic; refuse one of a newer engine."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.schema import HEAD, MIGRATION_LOCK

BUSY_SECONDS = 30.0


def upgrade(url: str, version: str, migrations: Path | None = None) -> None:
    """Bring the database from `version` to the newest. Raises `DATABASE_VERSION` where this engine does not know it.

    Of several processes that do so at once, one does it and the others wait.
    """
    config = migration_config(migrations)
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    if version not in known:
        message = f"the database stands at version {version!r}; this engine knows up to {HEAD!r}"
        raise LcpError(ErrorCode.DATABASE_VERSION, message)
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    finally:
        engine.dispose()


def migration_config(migrations: Path | None = None) -> Config:
    """Alembic's configuration, without a file: the migrations are in the package, or beside it in a checkout."""
    config = Config()
    config.set_main_option("script_location", str(migrations or migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def migrations_directory() -> Path:
    package = Path(__file__).parent.parent.parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent.parent / "migrations"


def _engine(url: str) -> Engine:
    if url.startswith("sqlite:"):
        return create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    _, _, rest = url.partition("://")
    return create_engine(f"postgresql+psycopg://{rest}")
