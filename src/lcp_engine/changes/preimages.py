"""Keep what a write replaces, or have a person say yes to a write that cannot be undone (R20)."""

from __future__ import annotations

from dataclasses import dataclass

from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import LockedFile
from lcp_engine.store.db.database import Database
from lcp_engine.store.people import was_held_for
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import FileEffect, Hold


@dataclass(frozen=True)
class Before:
    """A file before it is replaced. `data` is None where it is too large to read; `is_kept`: it can be restored."""

    sha256: str
    size: int
    data: bytes | None
    is_kept: bool


def look_before(
    database: Database, job: JobRow, effect: FileEffect, file: LockedFile, *, cap: int, keeps: int
) -> Before | Hold | None:
    """What the effect would replace, None where nothing is; `cap` bytes are written at most, `keeps` are kept.

    A larger content holds the job, unless a person approved it after it was held for that. Raises `TOO_LARGE` where
    something would be added to a file that is above the cap already.
    """
    there = file.read_within(keeps)
    if not isinstance(there, int):
        return None if there is None else Before(there.sha256, len(there.data), there.data, True)
    size = there
    if effect.mode == "append" and size > cap:
        message = f"{effect.path!r} has {size} bytes already, at most {cap} are written"
        raise LcpError(ErrorCode.TOO_LARGE, message)
    if not database.read(lambda tx: was_held_for(tx, job, ReasonCode.IRREVERSIBLE)):
        return Hold(because(ReasonCode.IRREVERSIBLE, size=size, most=keeps))
    if size > cap:
        digest = file.digest()
        return None if digest is None else Before(digest.sha256, size, None, False)
    current = file.read(cap)
    return None if current is None else Before(current.sha256, len(current.data), current.data, False)
