"""Keep backups of a database in a directory: one file for each due time, and the newest of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.upkeep.settings import Backups
from lcp_engine.features.upkeep.store.backup import back_up
from lcp_engine.sandbox.system.own_places import make_private
from lcp_engine.store.db.sqlite import BUSY_SECONDS, Sqlite
from lcp_engine.store.db.transaction import Backend
from lcp_engine.store.host.liveness import backups_directory

_TIME = "%Y%m%dT%H%M%SZ"
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


def keep_backups(
    url: str,
    backend: Backend,
    backups: Backups,
    due: Micros,
    *,
    busy_seconds: float = BUSY_SECONDS,
    is_stopping: Callable[[], bool] = lambda: False,
) -> tuple[Path, int]:
    """Back the database up for the due time, once, and delete its oldest backups; the file and its size.

    Only files that are named as this one are deleted. Raises like `back_up`.
    """
    directory, names = backups_directory(backend, backups.to), Names(url, backend)
    file = directory / names.at(due)
    try:
        if backups.to is None:
            make_private(directory)
        names.remove_broken(directory)
        if not file.exists():
            _back_up_once(url, file, busy_seconds, is_stopping)
        for old in names.found(directory)[: -backups.keep]:
            old.unlink(missing_ok=True)
        return file, file.stat().st_size
    except OSError as refused:
        message = f"backups in {str(directory)!r} cannot be kept: {refused.strerror}"
        raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=GENERAL) from refused


def _back_up_once(url: str, file: Path, busy_seconds: float, is_stopping: Callable[[], bool]) -> None:
    try:
        back_up(url, file, busy_seconds=busy_seconds, is_stopping=is_stopping)
    except LcpError as refused:
        # A runner that was taken for dead may have made it meanwhile.
        if refused.code is not ErrorCode.WRONG_STATE:
            raise


class Names:
    """The names of the backups of one database, also beside those of others: `lcp-1f2e3d4c-20261124T030000Z.db`."""

    def __init__(self, url: str, backend: Backend) -> None:
        if isinstance(backend, Sqlite):
            place, name, self._ending = str(backend.path.resolve()), backend.path.stem, "db"
        else:
            from psycopg.conninfo import conninfo_to_dict

            parts = conninfo_to_dict(url.replace("postgresql+psycopg://", "postgresql://", 1))
            name, self._ending = str(parts.get("dbname", "postgres")), "dump"
            place = " ".join(str(parts.get(key, "")) for key in ("host", "hostaddr", "port", "dbname"))
        digest = hashlib.blake2b(place.encode(), digest_size=4).hexdigest()
        self._stem = f"{_PLAIN.sub('_', name)}-{digest}"
        whole = rf"{re.escape(self._stem)}-\d{{8}}T\d{{6}}Z\.{self._ending}"
        self._whole = re.compile(whole)
        self._broken = re.compile(rf"\.{whole}\.[0-9a-f]{{16}}(-journal)?")

    def at(self, due: Micros) -> str:
        """The name of the backup for a due time."""
        return f"{self._stem}-{datetime.fromtimestamp(due // SECOND, UTC):{_TIME}}.{self._ending}"

    def found(self, directory: Path) -> list[Path]:
        """The backups that are there, the oldest first."""
        return sorted(path for path in directory.iterdir() if self._whole.fullmatch(path.name))

    def remove_broken(self, directory: Path) -> None:
        """Delete what a runner that was killed has left of a backup."""
        for path in directory.iterdir() if directory.is_dir() else ():
            if self._broken.fullmatch(path.name):
                path.unlink(missing_ok=True)
