"""Close the intents that nobody closed: say what became of a file whose writer died (R20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lcp_engine.changes.restore import finish_if_free
from lcp_engine.core.job_states import SETTLED
from lcp_engine.errors import OF_DATABASE, ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import Target
from lcp_engine.sandbox.confined_thread import Walls
from lcp_engine.sandbox.file_access import BareHands
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import close_intent, deliver_again, left_open
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.row_types import ChangeRow

APPLIED, CONFLICT = "applied", "conflict"
_NOT_THERE = (ErrorCode.PATH_NOT_FOUND, ErrorCode.NOT_A_FILE, ErrorCode.PATH_DENIED)


def close_left_open(database: Database, walls: Walls) -> None:
    """Close the intents of jobs that nobody executes any more: no retry may ever come to do it.

    The files are touched behind `walls`. Waits for nobody; leaves what is locked, or in a root that cannot be opened,
    for another time. Raises what the database has against it.
    """
    for change in database.read(left_open):
        try:
            with Root(change.root) as root:
                if root.path == change.root:  # else a link stands there now, and leads elsewhere
                    with walls.around(root, writes=True) as hands:
                        if change.undoes is None:
                            _close_if_free(database, change, root, hands)
                        else:
                            finish_if_free(database, change, root, hands, walls)
        except OSError:
            continue
        except LcpError as error:
            if error.code in OF_DATABASE:
                raise


def _close_if_free(database: Database, change: ChangeRow, root: Root, hands: BareHands) -> None:
    try:
        with hands.locked_if_free(root, change.path) as target:
            if target is None:
                return
            # Since it was found, somebody may have closed it, or begun the job again.
            left = [one for one in database.read(left_open) if one.id == change.id]
            close(database, left, fates(left, target))
    except LcpError as error:
        if error.code not in _NOT_THERE:
            raise
        # Where its directory is gone nobody works in it; what is no regular file now is nothing that was intended.
        fate = _fate(change, None) if error.code is ErrorCode.PATH_NOT_FOUND else CONFLICT
        close(database, [change], {change.id: fate})


def close(database: Database, left: Sequence[ChangeRow], became: Mapping[int, str]) -> None:
    """Close intents as `fates` found out; `became` goes by their ids."""

    def work(tx: Tx) -> None:
        ledger = ledger_of(tx)
        ledger.lock(change.mission_id for change in left)
        for change in left:
            if close_intent(tx, change.id, became[change.id]) and became[change.id] == APPLIED:
                tell(ledger, change.job_id, change.path)

    if left:
        database.write(work)


def tell(ledger: Ledger, job_id: int, path: str) -> None:
    """A job that was settled (cancelled) before its file was found written does not speak of it: its mission does."""
    job = ledger.job(job_id)
    if job.state not in SETTLED:
        return
    mission = ledger.mission(job.mission_id)
    mission.changed_seq = ledger.note(mission, "found_written", job_id, {"path": path})
    deliver_again(ledger.tx, mission.id)


def fates(left: Sequence[ChangeRow], target: Target) -> dict[int, str]:
    """Whoever takes the lock first says what became of intents that nobody closed."""
    for change in left:
        target.discard(change.temporary)
    mark = target.mark()
    sha = None if mark is None else mark.sha256
    found = {change.id: _fate(change, sha) for change in left}
    if APPLIED in found.values():
        target.sync()  # whoever renamed it may have died before
    return found


def _fate(change: ChangeRow, sha: str | None) -> str:
    if sha == change.sha256_after:
        return APPLIED
    return "void" if sha == change.sha256_before else CONFLICT
