"""Know the engine's own database in this process, so that nothing else opens it.

SQLite's locks belong to a process and a file: closing any descriptor of the file drops all of them, whoever opened it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from lcp_engine.errors import ErrorCode, LcpError

_SUFFIXES = ("", "-wal", "-shm")


class OwnFiles:
    """The databases that this process uses. `inodes` are the numbers of their files: a hint, as they come and go."""

    def __init__(self) -> None:
        self.inodes: frozenset[int] = frozenset()
        self._by_path: dict[str, tuple[int, ...]] = {}
        self._kept: list[int] = []

    def add(self, database: str | os.PathLike[str]) -> None:
        """From now on no job opens the SQLite database at this path; said again whenever its files may be new."""
        path = os.path.realpath(database)
        found = (_status(f"{path}{suffix}") for suffix in _SUFFIXES)
        self._by_path |= {path: tuple(status.st_ino for status in found if status is not None)}
        self.inodes = frozenset(inode for inodes in [*self._by_path.values()] for inode in inodes)

    def beneath(self, root: str) -> frozenset[str]:
        """Those of the files that lie beneath the directory `root`, relative to it."""
        prefix = f"{root.rstrip('/')}/"
        return frozenset(path[len(prefix) :] for path in self._paths() if path.startswith(prefix))

    def refuse(self, status: os.stat_result, path: str) -> None:
        """Raises `PATH_DENIED` where the file with this status is one of them; whatever its name, it is not opened."""
        if self._is_own(status):
            raise refusal_of_own(path)

    def holds(self, descriptor: int, status: os.stat_result) -> bool:
        """Whether a file that was opened already is one of them: then it stays open for as long as this process."""
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
"""Those of this process."""


def refusal_of_own(path: str) -> LcpError:
    """The refusal of a file of the engine."""
    return LcpError(
        ErrorCode.PATH_DENIED, f"{path!r} leads to the engine's own database, which no job may touch"
    )


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
