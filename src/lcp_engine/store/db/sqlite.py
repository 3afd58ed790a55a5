"""Speak to SQLite: one file, many processes."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from lcp_engine.clock import Clock, Micros, steady_clock
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.system.database_files import OWN_FILES
from lcp_engine.store.db.transaction import Connection, Lend

BUSY_SECONDS = 30.0
AGAIN_SECONDS = 0.005
_STEPS = 100_000
"""Instructions of SQLite's machine, some milliseconds, after which a statement finds out whether it is interrupted."""
LOG_PAGES = 4000
"""Pages in the WAL at which a commit checkpoints it, which delays the writers that wait.

As many as the first part of the WAL's index holds: beyond that each page takes longer to find.
"""
SPARSE = 256 * 1024
"""Bytes: with less free space, an I/O error of SQLite means a full disk (it cannot enlarge its shared memory)."""


OTHER_DATABASE = "Name another database with --db or LCP_DATABASE_URL."
"""The advice where no database can be used."""


def account_name(uid: int | None = None) -> str:
    """The name of the user `uid`, or of this process, if the system knows one."""
    number = os.geteuid() if uid is None else uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _permits(place: Path, mode: int) -> bool:
    return os.access(place, mode, effective_ids=os.access in os.supports_effective_ids)


_OF_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}


_BESIDE = ("-wal", "-shm")


class _Watched(sqlite3.Connection):
    """A connection that knows the files beside its database, and is not closed once one of them was lost.

    To close it would copy its old log over what others have written since.
    """

    beside: Sequence[tuple[int, int] | None] = ()
    is_lost = False

    def close(self) -> None:
        if not self.is_lost:
            super().close()

    def lose(self) -> None:
        """Keep it open until this process ends."""
        self.is_lost = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


class Sqlite:
    """SQLite in WAL mode; a commit is on disk when it returns (`synchronous=FULL`)."""

    name = "sqlite"
    away_seconds = 0.0
    """A disk that is full needs a person."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS, sweeps: bool = False) -> None:
        self.path = path
        self.is_stopping: Callable[[], bool] | None = None
        """Interrupts a long statement."""
        self._sweeps = sweeps
        self._busy_seconds = busy_seconds

    @property
    def is_read_only(self) -> bool:
        """True if this user may read the file and cannot change it; nothing is created beside it then."""
        return self._closed() is not None

    def _closed(self) -> Path | None:
        """The file of a database that can be read, or its directory, if this user may not write it."""
        if not _permits(self.path, os.R_OK):
            return None
        if not _permits(self.path, os.W_OK):
            return self.path
        is_closed = None in self._beside() and not _permits(self.path.parent, os.W_OK | os.X_OK)
        return self.path.parent if is_closed else None

    def connect(self) -> Connection:
        """A connection that writes; a missing file is created with mode 0600."""
        if self.is_read_only:  # SQLite would make files beside it, and refuse later
            refused = sqlite3.OperationalError("attempt to write a readonly database")
            refused.sqlite_errorcode = sqlite3.SQLITE_READONLY
            raise refused
        try:
            # Only a new file: closing any descriptor of one that is in use would drop this process's locks on it.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            message = f"database {self.path} cannot be written: {error.strerror}"
            raise LcpError(ErrorCode.DATABASE_FAILED, message, advice=GENERAL) from error
        with self._opened() as connection:
            self._use_log(connection)
            connection.execute(f"PRAGMA synchronous={'NORMAL' if self._sweeps else 'FULL'}")
            connection.execute(f"PRAGMA foreign_keys={'OFF' if self._sweeps else 'ON'}")
            # A sweep does it between its transactions.
            connection.execute(f"PRAGMA wal_autocheckpoint={0 if self._sweeps else LOG_PAGES}")
            self._guard(connection)
            return connection

    def sweeping(self) -> Sqlite:
        return Sqlite(self.path, busy_seconds=self._busy_seconds, sweeps=True)

    def flush(self, connection: Connection) -> bool:
        """Checkpoint the WAL; the next writer restarts it, unless another one wrote meanwhile."""
        cursor = connection.cursor()
        cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
        row = cursor.fetchone()
        return row is not None and row[1] > LOG_PAGES // 2

    def begin(self, connection: Connection) -> None:
        # IMMEDIATE: a transaction that reads first and writes later would fail at once, whatever the busy timeout
        connection.cursor().execute("BEGIN IMMEDIATE")
        assert isinstance(connection, _Watched)
        if connection.beside != (found := self._beside()):
            self._refuse_lost(connection, found)

    def settle(self, connection: Connection) -> None:
        """Every statement is waited for."""

    def transaction(self, connection: Connection) -> None:
        """No connection is lost here."""

    def has_committed(self, connection: Connection, transaction: str, at: Micros) -> None:
        """No connection is lost here."""

    def connect_to_read(self) -> Connection:
        mode = "rw"
        if self.is_read_only:
            # A log that is not empty has commits that the file lacks; without one, SQLite needs no files beside it.
            log = self.path.with_name(f"{self.path.name}{_BESIDE[0]}")
            mode = "ro" if log.exists() and log.stat().st_size else "ro&immutable=1"
        with self._opened(mode) as connection:
            connection.execute("PRAGMA query_only=ON")
            self._guard(connection)
            return connection

    def _guard(self, connection: _Watched) -> None:
        """Keep jobs from the files of the database: with the first read, those beside it are there, too."""
        connection.cursor().execute("PRAGMA schema_version")
        OWN_FILES.add(self.path)
        connection.beside = self._beside()

    def _beside(self) -> list[tuple[int, int] | None]:
        """Device and inode of each file beside the database; None where there is none."""
        found: list[tuple[int, int] | None] = []
        for ending in _BESIDE:
            try:
                stat = os.stat(f"{self.path}{ending}")  # noqa: PTH116 -- with each commit: a Path costs more
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_dev, stat.st_ino))
        return found

    def _refuse_lost(self, connection: _Watched, found: Sequence[tuple[int, int] | None]) -> NoReturn:
        """Others open the database with new files, and do not see what this process writes."""
        lost = [end for end, was, now in zip(_BESIDE, connection.beside, found, strict=True) if was != now]
        connection.cursor().execute("ROLLBACK")
        connection.lose()
        raise LcpError(
            ErrorCode.DATABASE_FAILED,
            f"{' and '.join(f'{self.path.name}{end}' for end in lost)} beside database {self.path} was removed or "
            "replaced while this process used it; it writes nothing more",
            advice="Start it again, then look for what is missing: `lcp db check`. Remove files of a database only "
            "while nothing uses it.",
        )

    def clock(self, lend: Lend) -> Clock:
        """One machine has one clock: the system's, kept from going back. Processes that write follow a shared one."""
        return steady_clock()

    def explain(self, error: Exception) -> LcpError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        fact = str(error)
        if "locked" in fact or "busy" in fact:
            message = f"database {self.path} stayed locked by another process for {self._busy_seconds:g} s"
            return LcpError(ErrorCode.DATABASE_BUSY, message)
        if "unable to open" in fact or "readonly" in fact:
            read_only = "" if self._closed() is None else " is read-only"
            message = f"database {self.path}{read_only}: {self._obstacle(fact)}"
            return LcpError(ErrorCode.DATABASE_FAILED, message, advice=GENERAL)
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC:
            # It is in the WAL until the next commit overwrites it there, and counts if the process dies before.
            fact = "it could not be synced, and it is unknown whether the last change was kept"
            return LcpError(
                ErrorCode.DATABASE_FAILED,
                f"database {self.path} is on a failing disk: {fact}",
                advice=GENERAL,
            )
        if "full" in fact or ("I/O" in fact and self._free_bytes() < SPARSE):
            message = f"database {self.path} needs space on its disk; {self._free_bytes()} bytes are free"
            return LcpError(ErrorCode.DATABASE_FAILED, message, advice=GENERAL)
        if "not a database" in fact:
            message = f"database {self.path} is not a SQLite database"
            return LcpError(ErrorCode.DATABASE_VERSION, message, advice=OTHER_DATABASE)
        return LcpError(ErrorCode.DATABASE_FAILED, f"database {self.path} refused: {fact}", advice=GENERAL)

    def _obstacle(self, fact: str) -> str:
        """Obstacle that keeps SQLite from the database: one of its files, or its directory."""
        if self._closed() == self.path:
            return f"user {account_name()} may not write it"
        for ending in ("", "-wal", "-shm"):
            file = self.path.with_name(f"{self.path.name}{ending}")
            if not os.path.lexists(file):
                continue
            try:
                file.stat()
            except OSError as error:
                return f"{file} cannot be opened: {error.strerror}"
            # Asked only after SQLite was refused, to say which file it is.
            if not os.access(file, os.R_OK | os.W_OK):
                return f"user {account_name()} may not read and write {file}"
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            fact = f"user {account_name()} may not write into its directory {self.path.parent}"
            return f"{fact}, where SQLite needs files beside it"
        return f"it is not writable; SQLite says: {fact}"

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Turn the WAL on. Where others do the same, SQLite refuses at once, whatever the busy timeout."""
        end = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(AGAIN_SECONDS)
            else:
                return

    def _free_bytes(self) -> int:
        try:
            return shutil.disk_usage(self.path.parent).free
        except OSError:
            return 0

    def may_retry(self, error: Exception) -> bool:
        return False

    def is_away(self, error: Exception) -> bool:
        code = getattr(error, "sqlite_errorcode", 0)
        return isinstance(error, sqlite3.Error) and code & 0xFF in _OF_DISK

    def is_usable(self, connection: Connection) -> bool:
        return True

    @contextmanager
    def _opened(self, mode: str = "rw") -> Iterator[_Watched]:
        """A connection to an existing file, closed if the block raises: the file may be broken or another program's."""
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=_Watched,
        )
        if self.is_stopping is not None:
            connection.set_progress_handler(self.is_stopping, _STEPS)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
