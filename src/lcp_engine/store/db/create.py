"""Create the tables that a database lacks, or upgrade an older one."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, Table, create_engine
from sqlalchemy.schema import CreateIndex, CreateTable

from lcp_engine.clock import system_clock
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.feature import leave_out
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import tables_of, version_of
from lcp_engine.store.db.sqlite import BUSY_SECONDS
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import is_dead, runtime_place, this_host
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.row_types import RunnerRow
from lcp_engine.store.schema import VIEWS, every_table, tables_of_packages
from lcp_engine.store.version import HEAD, MIGRATION_LOCK, REPLACED

if TYPE_CHECKING:
    from alembic.config import Config


def bring_to_head(database: Database, url: str, *, force: bool) -> None:
    """Create or upgrade under a lock: if several processes start at once, one of them does it.

    Raises `DATABASE_VERSION` while a runner of the older version lives, unless `force` is given.
    """
    outdated = database.write(_create)
    if outdated is not None:
        upgrade(url, outdated, force=force)
        database.write(_create)


def _create(tx: Tx) -> str | None:
    """Create what is missing, unless the database needs an upgrade first: returns its version then, otherwise None."""
    if not tx.is_sqlite:
        tx.plain(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    version = version_of(tx)
    if version not in (None, HEAD):
        return version
    there = tables_of(tx)
    for table in every_table():
        if table.name not in there:
            _create_table(tx, table)
    if version is None:
        for view in VIEWS:
            tx.plain(view.create(tx.is_sqlite))
        tx.plain("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
        tx.plain(f"INSERT INTO alembic_version VALUES ('{HEAD}')")
    for place, table in tables_of_packages():
        if table.name not in there:
            try:
                with ledger_of(tx).apart():
                    _create_table(tx, table)
            except Exception as raised:  # noqa: BLE001 -- others define it: the driver and SQLAlchemy may raise anything
                leave_out(place, raised)
    return None


def _create_table(tx: Tx, table: Table) -> None:
    for statement in _definition(table):
        tx.run(statement)
    for sql in table.info.get(tx.database, ()):
        tx.plain(sql)


@cache
def _definition(table: Table) -> list[Statement]:
    """The table with its indexes, compiled once in a process."""
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    return [Statement(CreateTable(table)), *(Statement(CreateIndex(index)) for index in indexes)]


def upgrade(url: str, version: str, migrations: Path | None = None, *, force: bool = False) -> None:
    """Bring the database from `version` to the newest.

    Raises `DATABASE_VERSION` if that is unknown, and while a runner of that version lives, unless `force` is given.

    If several processes upgrade at once, one does it and the others wait.
    """
    from alembic import command  # slow to load, and rarely needed
    from alembic.script import ScriptDirectory

    config = migration_config(migrations)
    scripts = ScriptDirectory.from_config(config)
    known = {revision.revision for revision in scripts.walk_revisions()}
    if version not in known:
        raise _unknown(version)
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            # Another process may have upgraded meanwhile.
            now_at = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            if not force and now_at != scripts.get_current_head():
                _refuse_live_runners(connection, url, version)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    finally:
        engine.dispose()


def _unknown(version: str) -> LcpError:
    first, last, commit = REPLACED
    message, advice = f"the database is at version {version!r}; this engine knows up to {HEAD!r}", GENERAL
    if first <= version <= last:
        message = (
            f"the database is at version {version!r}, which was in no release, and no step leads on from it"
        )
        advice = f"Install commit {commit}, bring the database to 0033 with `lcp db upgrade`, then use this version."
    return LcpError(ErrorCode.DATABASE_VERSION, message, advice=advice)


def _refuse_live_runners(connection: Connection, url: str, version: str) -> None:
    """Raise `DATABASE_VERSION` if a runner works on the database: it knows only the tables of its own version."""
    host, runtime = this_host(), runtime_place(url, os.environ)
    is_server = connection.dialect.name != "sqlite"
    clock = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
    now = connection.exec_driver_sql(clock).scalar_one() if is_server else system_clock()
    columns = "id, uid, host, boot, pid, alive_until"
    for row in connection.exec_driver_sql(
        f"SELECT {columns} FROM runners WHERE ended_at IS NULL ORDER BY id"
    ):
        runner = RunnerRow(*row)
        dead = is_dead(runner, host, runtime)
        if dead is False or (dead is None and runner.alive_until > now):
            message = (
                f"the database is at version {version!r}, this engine at {HEAD!r}, and runner {runner.id} (process "
                f"{runner.pid} on {runner.host}) of the older version is working on it; stop it first, or use "
                "`lcp db upgrade --force`"
            )
            advice = "Stop that runner, then try again; `lcp db upgrade --force` upgrades beside it."
            raise LcpError(ErrorCode.DATABASE_VERSION, message, advice=advice)


def migration_config(migrations: Path | None = None) -> Config:
    """Alembic's configuration, without a file: the migrations are in the package, or beside it in a checkout."""
    from alembic.config import Config

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
