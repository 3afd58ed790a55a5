"""Upgrade a database of an older engine with alembic; refuse one of a newer engine."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.database import Database
from lcp_engine.store.schema import HEAD


def upgrade(database: Database, url: str, version: str) -> None:
    """Bring the database from `version` to the newest. Raises `DATABASE_VERSION` where this engine does not know it."""
    config = migration_config()
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    if version not in known:
        message = f"the database stands at version {version!r}; this engine knows up to {HEAD!r}"
        raise LcpError(ErrorCode.DATABASE_VERSION, message)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    try:
        with engine.connect() as connection:
            connection.execute(text("BEGIN IMMEDIATE" if engine.dialect.name == "sqlite" else "SELECT 1"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    finally:
        engine.dispose()


def migration_config() -> Config:
    """Alembic's configuration, without a file: the migrations are in the package, or beside it in a checkout."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    return config


def migrations_directory() -> Path:
    package = Path(__file__).parent.parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent.parent / "migrations"
