"""Apply file effects exactly once, whatever is killed in between (R20).

Every step on one path happens under the lock of its directory: close what an earlier attempt left open, record the
intent with the content before, replace the file, then mark the intent applied and settle the job in one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lcp_engine.engine.binding import DRIFT, Drifted, drift_of, note_drift
from lcp_engine.engine.outcomes import Succeeded
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError, LeaseLost
from lcp_engine.jobs import SETTLED
from lcp_engine.preimages import Before, look_before
from lcp_engine.restoring import finish_if_free, finish_within
from lcp_engine.sandbox.compose import compose
from lcp_engine.sandbox.free import locked_if_free
from lcp_engine.sandbox.hands import HERE, Hands, Interrupted
from lcp_engine.sandbox.replace import Target, temporary_name
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import (
    changes_of,
    close_intent,
    deliver_again,
    intend,
    left_open,
    name_unkept,
    open_intents,
    sha256,
)
from lcp_engine.store.database import Database
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.records import ChangeRow, JobRow
from lcp_engine.store.text import to_json
from lcp_engine.store.transaction import Tx
from lcp_engine.workers.base import Applied, Caps, FileEffect, Hold

APPLIED, CONFLICT = "applied", "conflict"
_NOT_THERE = (ErrorCode.PATH_NOT_FOUND, ErrorCode.NOT_A_FILE, ErrorCode.PATH_DENIED)


@dataclass(frozen=True)
class Journal:
    """Applies the effects of leased jobs. `settle` settles a job inside the transaction it is given.

    `keeps`: up to how many bytes a content that is replaced is kept, so that it can be undone. `hands` touch the file.
    """

    database: Database
    settle: Callable[[Tx, JobRow, Succeeded | Failed | Hold], None]
    keeps: int = Caps.preimage_bytes
    hands: Hands = HERE

    def perform(self, job: JobRow, effect: FileEffect, root: Root, cap: int) -> None:
        """Bring the file to what `effect` wants, once, and settle `job`. `cap` is in bytes. Raises `LeaseLost`."""
        try:
            with self.hands.locked(root, effect.path) as target:
                self._perform(job, effect, root, target, cap)
        except LeaseLost:
            raise
        except Drifted as drifted:
            self._hold_again(job, drifted)
        except Interrupted as error:
            # The intent stays open: the next attempt, or else the watch, finds out what became of the file.
            interrupted = error.failed
            self.database.write(lambda tx: self.settle(tx, job.copy(), interrupted))
        except LcpError as error:
            if error.code in OF_DATABASE:
                raise
            failed = error.failed
            blocked = self._drift(job, effect, root, _found(self.hands, root, effect.path, cap))
            if blocked is not None:
                self._hold_again(job, blocked)
                return
            self.database.write(lambda tx: self.settle(tx, job.copy(), failed))

    def _perform(self, job: JobRow, effect: FileEffect, root: Root, target: Target, cap: int) -> None:
        left = self.database.read(lambda tx: open_intents(tx, _file(root, target)))
        if left:
            finish_within(self.database, left, target)
            _close(self.database, left, _fates(left, target))
        written = len(effect.content.encode())
        earlier = self.database.read(lambda tx: _earlier(tx, job, written))
        if earlier is not None:
            if isinstance(earlier, Succeeded):
                target.sync()  # that may be what failed the attempt
            self.database.write(lambda tx: self.settle(tx, job.copy(), earlier))
            return
        before = look_before(self.database, job, effect, target, cap=cap, keeps=self.keeps)
        if isinstance(before, Hold):
            hold = before
            self.database.write(lambda tx: self.settle(tx, job.copy(), hold))
            return
        drifted = self._drift(job, effect, root, None if before is None else before.sha256)
        if drifted is not None:
            raise drifted  # out of the lock: directories that were made for the file go with it
        data = compose(None if before is None else before.data, effect.content, effect.mode)
        if len(data) > cap:
            message = f"{effect.path!r} would have {len(data)} bytes, at most {cap} are written"
            raise LcpError(ErrorCode.TOO_LARGE, message)
        change = _intent(job, effect, root, target, before=before, data=data)
        change_id = self.database.write(lambda tx: _record(tx, job, change, before))
        try:
            target.replace(data, change.temporary)
        except Interrupted:
            raise
        except LcpError as error:
            failed = error.failed
            became = APPLIED if target.replaced else "void"
            self.database.write(
                lambda tx: self._settle_with(tx, change_id, became, job, failed, path=effect.path)
            )
            return
        done = Succeeded(change.result, written)
        self.database.write(lambda tx: self._settle_with(tx, change_id, APPLIED, job, done, path=effect.path))

    def _drift(self, job: JobRow, effect: FileEffect, root: Root, found: str | None) -> Drifted | None:
        file = os.path.normpath(f"{root.path}/{effect.path}")
        return self.database.read(lambda tx: drift_of(tx, job, file, effect.path, found))

    def _hold_again(self, job: JobRow, drifted: Drifted) -> None:
        def hold(tx: Tx) -> None:
            note_drift(ledger_of(tx), job, drifted)
            self.settle(tx, job.copy(), Hold(DRIFT))

        self.database.write(hold)

    def _settle_with(
        self, tx: Tx, change_id: int, state: str, job: JobRow, outcome: Succeeded | Failed, *, path: str
    ) -> None:
        """Close the intent and settle the job. The file is what it is, so the intent is closed without a lease too."""
        if close_intent(tx, change_id, state) and state == APPLIED:
            _tell(ledger_of(tx), job.id, path)
        self.settle(tx, job.copy(), outcome)


def _found(hands: Hands, root: Root, path: str, cap: int) -> str | None:
    """What stands in a file's place: its hash, None for nothing, or the code of what keeps it from being a file."""
    try:
        current = hands.look_at(root, path, cap)
    except LcpError as error:
        return error.code
    return None if current is None else current.sha256


def close_left_open(database: Database) -> None:
    """Close the intents of jobs that nobody executes any more: no retry may ever come to do it.

    Waits for nobody; leaves what is locked, or in a root that cannot be opened, for another time. Raises what the
    database has against it.
    """
    for change in database.read(left_open):
        try:
            with Root(change.root) as root:
                if root.path == change.root:  # else a link stands there now, and leads elsewhere
                    close = _close_if_free if change.undoes is None else finish_if_free
                    close(database, change, root)
        except OSError:
            continue
        except LcpError as error:
            if error.code in OF_DATABASE:
                raise


def _close_if_free(database: Database, change: ChangeRow, root: Root) -> None:
    try:
        with locked_if_free(root, change.path) as target:
            if target is None:
                return
            # Since it was found, somebody may have closed it, or begun the job again.
            left = [one for one in database.read(left_open) if one.id == change.id]
            _close(database, left, _fates(left, target))
    except LcpError as error:
        if error.code not in _NOT_THERE:
            raise
        # Where its directory is gone nobody works in it; what is no regular file now is nothing that was intended.
        fate = _fate(change, None) if error.code is ErrorCode.PATH_NOT_FOUND else CONFLICT
        _close(database, [change], {change.id: fate})


def _close(database: Database, left: Sequence[ChangeRow], fates: dict[int, str]) -> None:
    def close(tx: Tx) -> None:
        ledger = ledger_of(tx)
        ledger.lock(change.mission_id for change in left)
        for change in left:
            if close_intent(tx, change.id, fates[change.id]) and fates[change.id] == APPLIED:
                _tell(ledger, change.job_id, change.path)

    if left:
        database.write(close)


def _tell(ledger: Ledger, job_id: int, path: str) -> None:
    """A job that was settled (cancelled) before its file was found written does not speak of it: its mission does."""
    job = ledger.job(job_id)
    if job.state not in SETTLED:
        return
    mission = ledger.mission(job.mission_id)
    mission.changed_seq = ledger.note(mission, "found_written", job_id, {"path": path})
    deliver_again(ledger.tx, mission.id)


def _fates(left: Sequence[ChangeRow], target: Target) -> dict[int, str]:
    """Whoever takes the lock first says what became of intents that nobody closed."""
    for change in left:
        target.discard(change.temporary)
    current = target.read(None)
    sha = None if current is None else current.sha256
    fates = {change.id: _fate(change, sha) for change in left}
    if APPLIED in fates.values():
        target.sync()  # whoever renamed it may have died before
    return fates


def _fate(change: ChangeRow, sha: str | None) -> str:
    if sha == change.sha256_after:
        return APPLIED
    return "void" if sha == change.sha256_before else CONFLICT


def _earlier(tx: Tx, job: JobRow, written: int) -> Succeeded | Hold | None:
    """What an earlier attempt of this job came to: done, whatever the file is by now; or in conflict.

    A conflict before the last approval is settled by it.
    """
    for change in changes_of(tx, job.id):
        if change.state == APPLIED:
            return Succeeded(change.result, written)
        if change.state == CONFLICT and change.attempt >= job.approved:
            return Hold(CONFLICT)
    return None


def _intent(
    job: JobRow, effect: FileEffect, root: Root, target: Target, *, before: Before | None, data: bytes
) -> ChangeRow:
    sha_before = None if before is None else before.sha256
    applied = Applied(sha_before, sha256(data), len(data))
    return ChangeRow(
        id=0,
        mission_id=job.mission_id,
        job_id=job.id,
        attempt=job.attempt,
        root=root.path,
        path=effect.path,
        file=_file(root, target),
        mode=effect.mode,
        state="intent",
        sha256_before=sha_before,
        sha256_after=applied.sha256_after,
        size_bytes=len(data),
        temporary=temporary_name(),
        made=to_json(list(target.made)),
        result=to_json(effect.result(applied).model_dump(mode="json")),
        undoes=None,
    )


def _file(root: Root, target: Target) -> str:
    """The absolute path of the file. Neither the root's path nor one beneath it has passed a link."""
    return os.path.normpath(f"{root.path}/{target.path}")


def _record(tx: Tx, job: JobRow, change: ChangeRow, before: Before | None) -> int:
    """Write the intent, if the lease still stands. Raises `LeaseLost`."""
    if not ledger_of(tx).is_leased(job):
        raise LeaseLost(job.id, job.attempt)
    if before is not None and not before.is_kept:
        name_unkept(tx, before.sha256, before.size)
    return intend(tx, change, before.data if before is not None and before.is_kept else None)
