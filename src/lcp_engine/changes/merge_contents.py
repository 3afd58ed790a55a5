"""Keep what a merge writes, so that a merge that was decided is finished even if its stage is lost (R28).

Small contents are kept in the database, like those that are replaced. Larger ones are linked, or copied where the file
system has no links, into a directory of the merge beside the stages, which is removed once all its intents are closed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.entries import read_unlocked
from lcp_engine.sandbox.root import Root, refusal
from lcp_engine.sandbox.root_identity import open_known
from lcp_engine.store.changes import content
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.row_types import ChangeRow
from lcp_engine.store.stages import StageRow, is_merging, stage_of

MOST_IN_DATABASE = 64 * 1024
"""Bytes; the database keeps contents up to this size."""
PART = "part"
"""The key in the result of a change for a file that a person takes in part, or edited: the stage never had it."""
_PREFIX = ".merge-"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class KeptFiles:
    """The directory with the large contents of one merge, each named by its hash."""

    place: Path

    @classmethod
    def of(cls, stage: StageRow, job_id: int) -> KeptFiles:
        return cls(Path(stage.path).parent.parent / f"{_PREFIX}{job_id}")

    def add(self, stage: Root, files: Sequence[tuple[str, str]]) -> None:
        """Keep files of the stage durably, each given with its hash. Raises `FILE_SYSTEM` or `PATH_NOT_FOUND`."""
        if not files:
            return
        try:
            self.place.mkdir(mode=0o700, exist_ok=True)
            for path, sha in files:
                parent, _, name = path.rpartition("/")
                with _closing(stage.open_directory(parent)) as directory:
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


def merged_content(database: Database, change: ChangeRow) -> bytes | None:
    """Content that a file gets by a merge: the kept one, else that of the stage. None if it is removed.

    Raises `CONFLICT` if neither has it any more.
    """
    after = change.sha256_after
    if after is None:
        return None
    found = database.read(lambda tx: content(tx, after))
    if found is None and PART not in from_json(change.result):
        row = database.read(lambda tx: stage_of(tx, change.mission_id))
        if row is not None:
            found = KeptFiles.of(row, change.job_id).read(after)
            found = _staged(row, change.path, after) if found is None else found
    if found is None:
        message = (
            f"{change.path!r}: what was to be merged is gone, with the stage of mission {change.mission_id}"
        )
        raise LcpError(ErrorCode.CONFLICT, message, advice=GENERAL)
    return found


def _staged(row: StageRow, path: str, sha: str) -> bytes | None:
    """The content in the stage; None if it is gone, or another one."""
    try:
        with open_known(row.known) as stage:
            found = read_unlocked(stage, path, None)
    except LcpError as error:
        if error.failed.meaning.retry:
            raise
        return None
    return None if found is None or found.sha256 != sha else found.data


def remove_kept(database: Database, directory: Path) -> None:
    """Remove what was kept of merges that neither run nor have open intents."""
    try:
        found = [place for place in directory.iterdir() if place.name.startswith(_PREFIX)]
    except OSError:  # there are no stages, or they are another user's
        return
    for place in found:
        number = place.name.removeprefix(_PREFIX)
        if number.isdigit() and not database.read(partial(is_merging, job_id=int(number))):
            KeptFiles(place).remove()
