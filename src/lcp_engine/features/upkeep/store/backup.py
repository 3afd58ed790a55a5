"""Copy a database into one file while others use it."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from lcp_engine.core.summaries import size
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.system.kept_descriptors import no_forks
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import opened, version_of
from lcp_engine.store.db.sqlite import BUSY_SECONDS, OTHER_DATABASE, Sqlite
from lcp_engine.store.db.transaction import Connection

_LOOK_SECONDS = 0.2
_DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian keeps the programs of each PostgreSQL version."""


def back_up(
    url: str,
    file: Path,
    *,
    force: bool = False,
    environment: Mapping[str, str] = os.environ,
    busy_seconds: float = BUSY_SECONDS,
    is_stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Copy the database at `url` into `file`, readable by this user alone; the size in bytes.

    One consistent state is copied, and no writer waits for it. The file appears whole or not at all. SQLite gives a
    SQLite file, PostgreSQL an archive of pg_dump (custom format). Raises `WRONG_STATE` for a file that is there
    already (unless `force`), `INVALID_ARGUMENT` for the database itself, `PATH_NOT_FOUND` without its directory,
    `NOT_A_FILE`, `FILE_SYSTEM`, and `DATABASE_FAILED` where the copy cannot be made, also because it `is_stopping`.
    """
    with opened(url, busy_seconds, is_stopping) as database:
        try:
            _check_target(database, file, force=force)
        except OSError as error:
            message = f"backup {str(file)!r} cannot be written: {error.strerror}"
            raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=GENERAL) from error
        if database.read(version_of) is None:
            raise LcpError(
                ErrorCode.DATABASE_VERSION,
                "the database is empty; one of lcp-engine is expected",
                advice=OTHER_DATABASE,
            )
        temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            _copy(database, url, temporary, environment, is_stopping)
            return _put(temporary, file, force=force)
        except OSError as error:
            message = f"backup {str(file)!r} cannot be written: {error.strerror}"
            raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=GENERAL) from error
        finally:
            _discard(temporary)


def _check_target(database: Database, file: Path, *, force: bool) -> None:
    if not file.parent.is_dir():
        message = f"backup {str(file)!r} needs its directory {str(file.parent)!r}, which does not exist"
        raise LcpError(ErrorCode.PATH_NOT_FOUND, message)
    if isinstance(database.backend, Sqlite):
        own = database.backend.path.resolve()
        if file.resolve() in (own, own.with_name(f"{own.name}-wal"), own.with_name(f"{own.name}-shm")):
            message = f"backup {str(file)!r} is the database itself; another file is expected"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    if file.is_dir():
        raise LcpError(ErrorCode.NOT_A_FILE, f"backup {str(file)!r} is a directory; a file is expected")
    if os.path.lexists(file) and not force:
        raise _there_already(file)


def _there_already(file: Path) -> LcpError:
    return LcpError(
        ErrorCode.WRONG_STATE,
        f"backup {str(file)!r} exists already (--force replaces it)",
        advice="Name another file, or replace it with --force.",
    )


def _copy(
    database: Database,
    url: str,
    file: Path,
    environment: Mapping[str, str],
    is_stopping: Callable[[], bool],
) -> None:
    if not isinstance(database.backend, Sqlite):
        _dump(url, file, environment, is_stopping)
        return
    backend = database.backend
    with database.explained():
        opened = backend.connect_to_read() if backend.is_read_only else backend.connect()
    with closing(opened) as connection:
        connection.cursor().execute("PRAGMA query_only=OFF")  # it would refuse the copy, too
        needed = _size_of_copy(connection)
        with _naming_target(file, needed), database.explained():
            # Reads one state, as any reader does: in WAL mode writers go on meanwhile.
            connection.cursor().execute("VACUUM INTO :file", {"file": str(file)})


def _size_of_copy(connection: Connection) -> int:
    """About how many bytes a compact copy has."""
    cursor = connection.cursor()
    cursor.execute(
        "SELECT (page_count - freelist_count) * page_size "
        "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    )
    return int(cursor.fetchall()[0][0])


_OF_TARGET = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC})
"""What SQLite says of the copy: from the database it only reads."""


@contextmanager
def _naming_target(file: Path, needed: int) -> Iterator[None]:
    """The error of a copy that cannot be written says so, and not that the database is at fault."""
    try:
        yield
    except LcpError as error:
        cause = error.__cause__
        if not (isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode in _OF_TARGET):
            raise
        _discard(file)  # what is free without it counts
        free = shutil.disk_usage(file.parent).free
        message = (
            f"a backup needs {size(needed)} in {str(file.parent)!r}, where {size(free)} are free; "
            f"SQLite says: {cause}"
        )
        advice = "Make room there, or have backups in another directory."
        raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=advice) from error


def _discard(temporary: Path) -> None:
    for path in (temporary, temporary.with_name(f"{temporary.name}-journal")):
        path.unlink(missing_ok=True)


def _dump(url: str, file: Path, environment: Mapping[str, str], is_stopping: Callable[[], bool]) -> None:
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    parts = conninfo_to_dict(url.replace("postgresql+psycopg://", "postgresql://", 1))
    secret = parts.pop("password", None)
    parts.pop("sslpassword", None)  # it has no variable, and arguments can be read by everybody
    place = make_conninfo("", **parts)
    command = [
        _pg_dump(environment),
        "--format=custom",
        "--no-password",
        f"--file={file}",
        f"--dbname={place}",
    ]
    own = {**environment, "LC_ALL": "C", **({} if secret is None else {"PGPASSWORD": str(secret)})}
    with no_forks():
        dumping = subprocess.Popen(  # noqa: S603 -- pg_dump, as this user would run it
            command,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    said = " ".join(_wait(dumping, is_stopping).split())
    if dumping.returncode != 0:
        said = said or f"it ended with {dumping.returncode}"
        raise LcpError(
            ErrorCode.DATABASE_FAILED,
            f"pg_dump could not copy the database into {str(file.parent)!r}; it says: {said}",
            advice="Correct what pg_dump names.",
        )


def _wait(program: subprocess.Popen[str], is_stopping: Callable[[], bool]) -> str:
    """Wait for a program and end it once it `is_stopping`; what it says."""
    try:
        while True:
            try:
                return program.communicate(timeout=_LOOK_SECONDS)[1]
            except subprocess.TimeoutExpired:
                if is_stopping():
                    program.terminate()
    except BaseException:  # an interrupt, too: nothing goes on writing
        program.kill()
        program.wait()
        raise


def _pg_dump(environment: Mapping[str, str]) -> str:
    found = shutil.which("pg_dump", path=environment.get("PATH"))
    if found is not None:
        return found
    versions = sorted(_DEBIAN.glob("*/bin/pg_dump"), key=lambda program: _version(program.parts[-3]))
    if versions:
        return str(versions[-1])
    message = (
        f"a backup of PostgreSQL needs pg_dump on PATH or beneath {_DEBIAN}; it was not found "
        "(Debian: the package postgresql-client)"
    )
    raise LcpError(ErrorCode.DATABASE_FAILED, message, advice="Install pg_dump.")


def _version(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0


def _put(temporary: Path, file: Path, *, force: bool) -> int:
    """Have `file` be what is in `temporary`, also after a power cut."""
    _sync(temporary)
    count = temporary.stat().st_size
    if force:
        temporary.replace(file)
    else:
        try:
            os.link(temporary, file)  # unlike a rename, this replaces nothing
        except FileExistsError as error:
            raise _there_already(file) from error
    with suppress(OSError):  # some file systems have no fsync for directories
        _sync(file.parent)
    return count


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
