"""Keep which files of its held jobs a person has viewed, until what is shown of them changes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from lcp_engine.changes.unified_diff import Diff
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.store.viewed_files import drop_viewed, keep_viewed, viewed_by

_MARK = re.compile(r"[0-9a-f]{32}")


def mark_of(diff: Diff) -> str:
    """Names what is shown of a file, to the last character and with its path: anything else has another mark."""
    shown = "\0".join([diff.path, diff.note or "", *diff.lines])
    return hashlib.sha256(shown.encode(errors="surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True)
class ViewedFiles:
    """Marks of a person in one mission, so that a file that is shown again by a later job is still viewed."""

    _instance: Instance
    _mission_id: int
    _person: str

    def marks(self) -> dict[str, bool]:
        """Each mark, and whether all of what it names had been on the person's screen."""
        return self._instance.read(viewed_by, self._mission_id, self._person)

    def add(self, mark: str, *, was_seen: bool) -> None:
        """Mark what a file was shown as. Raises `INVALID_ARGUMENT` for what no `mark_of` has made."""
        if not _MARK.fullmatch(mark):
            message = f"{mark[:40]!r} is not the mark of a file; nothing was marked"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
        self._instance.database.write(
            lambda tx: keep_viewed(tx, self._mission_id, self._person, mark, was_seen=was_seen)
        )

    def remove(self, mark: str) -> None:
        """Take a mark back; nothing happens without one."""
        self._instance.database.write(lambda tx: drop_viewed(tx, self._mission_id, self._person, mark))
