"""Open a database: create it, or upgrade it to this engine's schema, where needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lcp_engine.clock import Clock
from lcp_engine.errors import ErrorCode, LcpError, install
from lcp_engine.feature import available
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.sqlite import BUSY_SECONDS, OTHER_DATABASE, Sqlite, account_name
from lcp_engine.store.db.transaction import Backend, Tx
from lcp_engine.store.version import HEAD


def open_database(
    url: str,
    clock: Clock | None = None,
    busy_seconds: float = BUSY_SECONDS,
    away_seconds: float | None = None,
    *,
    force: bool = False,
) -> Database:
    """The database at `url` (`sqlite:///PATH` or `postgresql://…`), created or upgraded as needed, and given
    the tables of features that were not installed when it was.

    `force` upgrades it beside live runners of the older version. Raises `DATABASE_VERSION` if there are any, or if it
    belongs to something else or to a newer engine, `DATABASE_FAILED` if it cannot be opened.
    """
    database = Database(make_backend(url, busy_seconds), clock, away_seconds=away_seconds)
    try:
        with database.explained():
            version, is_whole = database.read(_state) if _exists(database.backend) else (None, False)
            if not is_whole and not (version == HEAD and is_read_only(database)):
                if version is not None and is_read_only(database):
                    message = f"the database is at version {version!r}, this engine at {HEAD!r}, and it is read-only"
                    advice = "Copy it to where you may write, and name the copy; it is upgraded then."
                    raise LcpError(
                        ErrorCode.DATABASE_VERSION, f"{message}; a copy can be upgraded", advice=advice
                    )
                from lcp_engine.store.db.create import bring_to_head  # slow to load, and rarely needed

                bring_to_head(database, url, force=force)
    except BaseException:  # an interrupt, too, leaves no connection open
        database.close()
        raise
    return database


@contextmanager
def opened(
    url: str, busy_seconds: float, is_stopping: Callable[[], bool] | None = None
) -> Iterator[Database]:
    """The database as it is, not created or upgraded; `is_stopping` interrupts statements of SQLite."""
    backend = make_backend(url, busy_seconds)
    if isinstance(backend, Sqlite):
        backend.is_stopping = is_stopping
        if not backend.path.is_file():
            message = f"database {backend.path} does not exist"
            raise LcpError(ErrorCode.DATABASE_FAILED, message, advice=OTHER_DATABASE)
    database = Database(backend)
    try:
        yield database
    finally:
        database.close()


def find_version(url: str, busy_seconds: float = BUSY_SECONDS) -> str | None:
    """The version of the database at `url`; None if it is missing or empty."""
    if not _exists(make_backend(url, busy_seconds)):
        return None
    with opened(url, busy_seconds) as database:
        return database.read(version_of)


def is_read_only(database: Database) -> bool:
    """True for a file of SQLite that this user can read and not change."""
    return isinstance(database.backend, Sqlite) and database.backend.is_read_only


def make_backend(url: str, busy_seconds: float = BUSY_SECONDS) -> Backend:
    """The backend for the database that `url` names, not connected yet."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        path = Path(rest[1:])
        _check_place(path)
        return Sqlite(path, busy_seconds=busy_seconds)
    if scheme.split("+")[0] in ("postgresql", "postgres"):
        return _postgres(url)
    fact = f"begins with {scheme if '://' in url else url!r}"
    if scheme == "sqlite":
        fact = f"names no file behind {url!r}"
    message = f"a database URL is sqlite:///PATH or postgresql://HOST/NAME; this one {fact}"
    raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def _check_place(path: Path) -> None:
    """Raise `DATABASE_FAILED` if no database can be at `path`."""
    try:
        directory, parent = path.is_dir(), path.parent.is_dir()
        above = path.parent.exists()
        _check_owner(path)
    except OSError as error:
        raise LcpError(
            ErrorCode.DATABASE_FAILED, _out_of_reach(path, error), advice=OTHER_DATABASE
        ) from error
    missing = "is not a directory" if above else "does not exist"
    fact = None if parent else f"needs its directory {path.parent}, which {missing}"
    if directory:
        fact = "is a directory; a file is expected"
    if fact is not None:
        raise LcpError(ErrorCode.DATABASE_FAILED, f"database {path} {fact}", advice=OTHER_DATABASE)


def _check_owner(path: Path) -> None:
    """Raise `DATABASE_FAILED` if the database is another user's, who can read what this one writes, and change it."""
    if Sqlite(path).is_read_only:
        return
    for file in (path, *(path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))):
        try:
            owner = file.stat().st_uid
        except FileNotFoundError:
            continue
        if owner != os.geteuid():
            theirs, ours = account_name(owner), account_name()
            message = f"database file {file} belongs to user {theirs}, not to {ours}"
            advice = f"Run as {theirs}, chown the file to {ours}, or use another one with --db."
            raise LcpError(ErrorCode.DATABASE_FAILED, message, advice=advice)


def _out_of_reach(path: Path, error: OSError) -> str:
    if isinstance(error, PermissionError):
        closed = next(
            (place for place in reversed(path.parents) if not os.access(place, os.X_OK)), path.parent
        )
        return f"database {path} is out of reach: user {account_name()} may not enter {closed}"
    return f"database {path} cannot be opened: {error.strerror}"


def _postgres(url: str) -> Backend:
    try:
        from lcp_engine.store.db.postgres import Postgres
    except ModuleNotFoundError as error:
        message = f"PostgreSQL needs the extra 'postgres' (psycopg is missing): {install('postgres')}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=f"{install('postgres')}.") from error
    return Postgres(url)


def _exists(backend: Backend) -> bool:
    return not isinstance(backend, Sqlite) or (backend.path.is_file() and backend.path.stat().st_size > 0)


def _state(tx: Tx) -> tuple[str | None, bool]:
    """The schema's version, and whether a database of the newest has the tables of all features known by now."""
    version = version_of(tx)
    return version, version == HEAD and available().tables.keys() <= {*tables_of(tx)}


def version_of(tx: Tx) -> str | None:
    """The schema's version; None for an empty database."""
    tables = set(tables_of(tx))
    if "alembic_version" in tables and "missions" in tables:
        tx_rows = tx.query_plain("SELECT version_num FROM alembic_version")
        return str(tx_rows[0][0]) if tx_rows else None
    if tables:
        some = ", ".join(sorted(tables)[:3])
        message = f"the database is not lcp-engine's; it holds other tables ({some})"
        raise LcpError(ErrorCode.DATABASE_VERSION, message, advice=OTHER_DATABASE)
    return None


def refuse_newer(tx: Tx) -> None:
    """Raise `DATABASE_VERSION` if the database was upgraded beyond this engine since it was opened."""
    version = str(tx.query_plain("SELECT version_num FROM alembic_version")[0][0])
    if version > HEAD:
        message = "the database is newer than this runner; upgrade and restart"
        details = f"{message} (it is at version {version!r}, the runner at {HEAD!r})"
        advice = "Install the version that upgraded the database, and start the runner again."
        raise LcpError(ErrorCode.DATABASE_VERSION, details, advice=advice)


def tables_of(tx: Tx) -> list[str]:
    if tx.is_sqlite:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    else:
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    return [str(row[0]) for row in tx.query_plain(sql)]
