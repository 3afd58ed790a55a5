"""Keep jobs from opening the engine's own SQLite database.

SQLite's locks belong to a process and a file: closing any descriptor of the file in this process releases them all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from lcp_engine.errors import ErrorCode, LcpError

_SUFFIXES = ("", "-wal", "-shm")


class OwnFiles:
    """The databases that this process uses. `inodes` are those of their files: a hint, as files come and go."""

    def __init__(self) -> None:
        self.inodes: frozenset[int] = frozenset()
        self._by_path: dict[str, tuple[int, ...]] = {}
        self._kept: list[int] = []

    def add(self, database: str | os.PathLike[str]) -> None:
        """Refuse the SQLite database at this path to jobs from now on; repeat it whenever its files may be new.

        Others that are gone are forgotten: each that is known costs a look whenever a job opens a file.
        """
        path = os.path.realpath(database)
        found = (_status(f"{path}{suffix}") for suffix in _SUFFIXES)
        known = {other: inodes for other, inodes in self._by_path.items() if os.path.exists(other)}
        self._by_path = known | {path: tuple(status.st_ino for status in found if status is not None)}
        self.inodes = frozenset(inode for inodes in [*self._by_path.values()] for inode in inodes)

    def beneath(self, root: str) -> frozenset[str]:
        """The database files beneath the directory `root`, relative to it."""
        prefix = f"{root.rstrip('/')}/"
        return frozenset(path[len(prefix) :] for path in self._paths() if path.startswith(prefix))

    def refuse(self, status: os.stat_result, path: str) -> None:
        """Raises `PATH_DENIED` if the file with this status is one of them, whatever name led to it."""
        if self._is_own(status):
            raise refusal_of_own(path)

    def holds(self, descriptor: int, status: os.stat_result) -> bool:
        """True if an open file is one of them; then it is kept open until this process ends, to keep the locks."""
        if status.st_ino not in self.inodes or not self._is_own(status):
            return False
        self._kept.append(descriptor)
        return True

    def _paths(self) -> Iterable[str]:
        return (f"{path}{suffix}" for path in [*self._by_path] for suffix in _SUFFIXES)

    def _is_own(self, status: os.stat_result) -> bool:
        found = map(_status, self._paths())
        return any(one is not None and os.path.samestat(one, status) for one in found)


OWN_FILES = OwnFiles()
"""The database files of this process."""


def refusal_of_own(path: str) -> LcpError:
    """The refusal of a path that leads to a database file."""
    return LcpError(
        ErrorCode.PATH_DENIED,
        f"{path!r} leads to the engine's own database, which no job may touch",
        advice="Leave the engine's own files alone.",
    )


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
