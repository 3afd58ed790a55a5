"""Keep large contents that a change set writes, so that one that was decided is finished if their source is lost (R20).

Small contents are kept in the database, like those that are replaced. Larger ones are linked, or copied where the file
system has no links, into a directory that is removed once all intents of the set are closed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lcp_engine.sandbox.root import Root, refusal

MOST_IN_DATABASE = 64 * 1024
"""Bytes; the database keeps contents up to this size."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class KeptFiles:
    """The directory with the large contents of one change set, each named by its hash."""

    place: Path

    def add(self, source: Root, files: Sequence[tuple[str, str]]) -> None:
        """Keep files of `source` durably, each given with its hash. Raises `FILE_SYSTEM` or `PATH_NOT_FOUND`."""
        if not files:
            return
        try:
            self.place.mkdir(mode=0o700, exist_ok=True)
            for path, sha in files:
                parent, _, name = path.rpartition("/")
                with _closing(source.open_directory(parent)) as directory:
                    _link(directory, name, self.place / sha)
            for place in (self.place, self.place.parent):
                with _closing(os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
                    os.fsync(directory)
        except OSError as error:
            raise refusal(error, str(error.filename or self.place)) from error

    def read(self, sha: str) -> bytes | None:
        """A content; None if it is not there, or not what was kept."""
        with suppress(OSError):
            descriptor = os.open(self.place / sha, _READ)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
            return data if hashlib.sha256(data).hexdigest() == sha else None
        return None

    def remove(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _link(directory: int, name: str, to: Path) -> None:
    with suppress(FileExistsError):  # of an earlier attempt, or of another file with this content
        try:
            os.link(name, to, src_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # the file system has no links, or permits none
            _copy(directory, name, to)


def _copy(directory: int, name: str, to: Path) -> None:
    descriptor = os.open(name, _READ, dir_fd=directory)
    unfinished = to.with_name(f"{to.name}.new")
    unfinished.touch(mode=0o600)
    with os.fdopen(descriptor, "rb") as source, unfinished.open("wb") as target:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
    unfinished.rename(to)
