"""Find what a merge writes, so that a merge that was decided is finished even if its stage is lost (R28).

Large contents are kept in a directory of the merge beside the stages, which is removed once all its intents are closed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lcp_engine.changes.kept_files import KeptFiles
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.stages.store import StageRow, is_merging, stage_of
from lcp_engine.sandbox.entries import read_unlocked
from lcp_engine.sandbox.root_identity import open_known
from lcp_engine.store.changes import content
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.row_types import ChangeRow

PART = "part"
"""The key in the result of a change for a file that a person takes in part, or edited: the stage never had it."""
_PREFIX = ".merge-"


def kept_of(stage: StageRow, job_id: int) -> KeptFiles:
    """The large contents of a merge, in a directory beside the stages."""
    return KeptFiles(Path(stage.path).parent.parent / f"{_PREFIX}{job_id}")


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
            found = kept_of(row, change.job_id).read(after)
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
