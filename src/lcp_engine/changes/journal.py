"""Apply file effects exactly once, whatever is killed in between (R20).

Every step on one path happens under the lock of its directory: close what an earlier attempt left open, record the
intent with the content before, replace the file, then mark the intent applied and settle the job in one transaction.
Effects of one mission that are applied together share these transactions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lcp_engine.changes.preimages import Before, look_before
from lcp_engine.changes.recovery import APPLIED, CONFLICT, VOID, close_intents, note_late_write
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.people.approval_binding import DRIFT, Drifted, drift_of, note_drift
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError
from lcp_engine.sandbox.atomic_write import LockedFile, temporary_name
from lcp_engine.sandbox.file_access import HERE, FileAccess, Interrupted
from lcp_engine.sandbox.locks import LockedFiles, Put
from lcp_engine.sandbox.new_content import compose
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import changes_of, close_intent, intend, keep, name_unkept, open_intents, sha256
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.workers.base import Applied, Caps, FileEffect, Hold

MOST_HELD = 32 * 1024 * 1024
"""Bytes of contents, before and after: a batch goes no further beyond so many."""


@dataclass(frozen=True)
class Wish:
    """What a leased job wants of a file."""

    job: JobRow
    effect: FileEffect


@dataclass
class _Write:
    """How far a wish has come: it is settled with `outcome`, or there is `trouble`."""

    wish: Wish
    file: LockedFile
    outcome: Succeeded | Failed | Hold | None = None
    trouble: Drifted | LcpError | None = None
    before: Before | None = None
    data: bytes = b""
    change: ChangeRow | None = None
    change_id: int | None = None
    became: str = APPLIED

    @property
    def job(self) -> JobRow:
        return self.wish.job

    @property
    def held(self) -> int:
        """Bytes of content in memory."""
        before = self.before.data if self.before is not None else None
        return len(self.data) + len(before or b"")

    @property
    def written(self) -> int:
        return len(self.wish.effect.content.encode())


class Tracker(Protocol):
    """What a thread reports of the jobs that it executes together."""

    def start(self, job: JobRow) -> bool:
        """Start the timeout of a job. False if the job was given back: it is no longer this thread's to execute."""

    def pause(self, jobs: Iterable[JobRow]) -> None:
        """Let jobs that wait for a lock be given back, until each is started again."""

    def settle_finished(self) -> None:
        """Settle the jobs that are finished. Called before a file changes: what they saw of it is older (R11)."""


class Untracked:
    """Jobs that no other thread watches."""

    def start(self, job: JobRow) -> bool:
        return True

    def pause(self, jobs: Iterable[JobRow]) -> None:
        """They cannot be given back."""

    def settle_finished(self) -> None:
        """They are settled later."""


UNTRACKED = Untracked()


@dataclass(frozen=True)
class Journal:
    """Applies the effects of leased jobs of one mission beneath its `root`; no file gets more than `cap` bytes.

    `settle` settles a job inside the transaction it is given. `keeps`: up to how many bytes a content that is replaced
    is kept, so that it can be undone. `files` accesses the files; `tracker` is told when the file of a job is touched.
    """

    database: Database
    settle: Callable[[Tx, JobRow, Succeeded | Failed | Hold], None]
    root: Root
    cap: int = Caps.write_bytes
    keeps: int = Caps.preimage_bytes
    files: FileAccess = HERE
    tracker: Tracker = UNTRACKED

    def perform(self, wishes: Sequence[Wish]) -> None:
        """Bring files to what the wishes want, each once, in their order for each file, and settle the jobs.

        One that lost its lease, or was given back, drops out alone. Raises what the database has against it, and
        `Interrupted` for more than one wish: each alone finds out what became of its file.
        """
        left = list(wishes)
        while left:
            self.tracker.pause(wish.job for wish in left)
            left = self._round(left)

    def _round(self, wishes: Sequence[Wish]) -> list[Wish]:
        """Those whose turn comes once the others are settled."""
        if not self.tracker.start(wishes[0].job):  # the directory of its file is waited for
            return list(wishes[1:])
        later: list[Wish] = []
        troubles: list[tuple[Wish, Drifted | LcpError]] = []
        try:
            with self.files.lock([(self.root, wish.effect.path) for wish in wishes]) as batch:
                writes: list[_Write] = []
                for wish, held in zip(wishes, batch.found, strict=True):
                    if isinstance(held, LockedFile):
                        writes.append(_Write(wish, held))
                    elif held is None:
                        later.append(wish)
                    else:
                        troubles.append((wish, held))
                later = [*self._write(writes, batch), *later]
        except Interrupted as error:
            if len(wishes) > 1:
                raise
            # The intent stays open: the next attempt, or else the watch, finds out what became of the file.
            interrupted, job = error.failed, wishes[0].job
            self.database.write(lambda tx: self.settle(tx, job.copy(), interrupted))
            return later
        # Out of the lock: directories that were made for a file went with it.
        troubles += [(write.wish, write.trouble) for write in writes if write.trouble is not None]
        for wish, trouble in troubles:
            self._refuse(wish, trouble)
        return later

    def _write(self, writes: Sequence[_Write], batch: LockedFiles) -> list[Wish]:
        """Settle all that meet no trouble, but for those whose contents would be too much at a time."""
        self._recall(writes)
        held, left = 0, list[Wish]()
        for write in writes:
            if write.outcome is None and held >= MOST_HELD:
                left.append(write.wish)
            elif write.outcome is None and self.tracker.start(write.job):
                self._look(write)
                held += write.held
        intended = [write for write in writes if write.change is not None]
        self._intend(intended)
        self._put(batch, [write for write in intended if write.change_id is not None])
        settled = [write for write in writes if write.outcome is not None]
        if settled:
            self.database.write(lambda tx: self._settle(tx, settled))
        return left

    def _recall(self, writes: Sequence[_Write]) -> None:
        """Close what was left open, and find what an earlier attempt came to."""
        left = self.database.read(lambda tx: [open_intents(tx, self._file(write)) for write in writes])
        for write, changes in zip(writes, left, strict=True):
            if changes:
                close_intents(self.database, changes, write.file)
        found = self.database.read(lambda tx: [_earlier(tx, write.job, write.written) for write in writes])
        for write, earlier in zip(writes, found, strict=True):
            write.outcome = earlier
            if isinstance(earlier, Succeeded):
                write.file.sync()  # that may be what failed the attempt

    def _look(self, write: _Write) -> None:
        """What the effect will replace, and by what; or why it will not."""
        try:
            self._compose(write)
        except Interrupted:
            raise
        except LcpError as error:
            if error.code in OF_DATABASE:
                raise
            write.trouble = error

    def _compose(self, write: _Write) -> None:
        job, effect = write.job, write.wish.effect
        before = look_before(self.database, job, effect, write.file, cap=self.cap, keeps=self.keeps)
        if isinstance(before, Hold):
            write.outcome = before
            return
        write.trouble = self._drift(write.wish, None if before is None else before.sha256)
        if write.trouble is not None:
            return
        data = compose(None if before is None else before.data, effect.content, effect.mode)
        if len(data) > self.cap:
            message = f"{effect.path!r} would have {len(data)} bytes, at most {self.cap} are written"
            raise LcpError(ErrorCode.TOO_LARGE, message)
        write.before, write.data = before, data
        write.change = self._intent(write)

    def _intend(self, writes: Sequence[_Write]) -> None:
        """Record the intents of the jobs whose leases still stand."""

        def record(tx: Tx) -> list[int | None]:
            ledger_of(tx).lock(write.job.mission_id for write in writes)
            _keep(tx, [write.before for write in writes if write.before is not None])
            return [_record(tx, write) for write in writes]

        for write, change_id in zip(writes, self.database.write(record) if writes else (), strict=True):
            write.change_id = change_id

    def _put(self, batch: LockedFiles, writes: Sequence[_Write]) -> None:
        puts = [
            Put(write.file, write.data, write.change.temporary)
            for write in writes
            if write.change is not None
        ]
        errors = batch.put(puts, lambda nth: self.tracker.start(writes[nth].job))
        for write, error in zip(writes, errors, strict=True):
            assert write.change is not None
            write.outcome = Succeeded(write.change.result, write.written) if error is None else error.failed
            write.became = APPLIED if write.file.replaced else VOID

    def _settle(self, tx: Tx, writes: Sequence[_Write]) -> None:
        """Close intents and settle jobs. A file is what it is, so its intent is closed without a lease too."""
        ledger = ledger_of(tx)
        ledger.lock(write.job.mission_id for write in writes)
        for write in writes:
            assert write.outcome is not None
            is_closed = write.change_id is not None and close_intent(tx, write.change_id, write.became)
            if is_closed and write.became == APPLIED:
                note_late_write(ledger, write.job.id, write.wish.effect.path)
            self.settle(tx, write.job.copy(), write.outcome)

    def _refuse(self, wish: Wish, trouble: Drifted | LcpError) -> None:
        drifted = (
            trouble if isinstance(trouble, Drifted) else self._drift(wish, self._found(wish.effect.path))
        )
        if drifted is not None:
            self.database.write(lambda tx: self._hold_again(tx, wish.job, drifted))
        elif isinstance(trouble, LcpError):
            failed = trouble.failed
            self.database.write(lambda tx: self.settle(tx, wish.job.copy(), failed))

    def _hold_again(self, tx: Tx, job: JobRow, drifted: Drifted) -> None:
        note_drift(ledger_of(tx), job, drifted)
        self.settle(tx, job.copy(), Hold(DRIFT))

    def _drift(self, wish: Wish, found: str | None) -> Drifted | None:
        if not wish.job.approved:
            return None
        path = wish.effect.path
        file = os.path.normpath(f"{self.root.path}/{path}")
        return self.database.read(lambda tx: drift_of(tx, wish.job, file, path, found))

    def _found(self, path: str) -> str | None:
        """What stands in a file's place: its hash, None for nothing, or the code of what keeps it from being a file."""
        try:
            current = self.files.read_unlocked(self.root, path, self.cap)
        except Interrupted:
            raise
        except LcpError as error:
            return error.code
        return None if current is None else current.sha256

    def _intent(self, write: _Write) -> ChangeRow:
        effect = write.wish.effect
        sha_before = None if write.before is None else write.before.sha256
        applied = Applied(sha_before, sha256(write.data), len(write.data))
        return ChangeRow(
            id=0,
            mission_id=write.job.mission_id,
            job_id=write.job.id,
            attempt=write.job.attempt,
            root=self.root.path,
            path=effect.path,
            file=self._file(write),
            mode=effect.mode,
            state="intent",
            sha256_before=sha_before,
            sha256_after=applied.sha256_after,
            size_bytes=len(write.data),
            temporary=temporary_name(),
            made=to_json(list(write.file.made)),
            result=to_json(effect.result(applied).model_dump(mode="json")),
            undoes=None,
        )

    def _file(self, write: _Write) -> str:
        """The absolute path of the file. Neither the root's path nor one beneath it has passed a link."""
        return os.path.normpath(f"{self.root.path}/{write.file.path}")


def _keep(tx: Tx, contents: Iterable[Before]) -> None:
    """In the order of their hashes: two that keep the same ones never wait for each other."""
    for one in sorted(contents, key=lambda one: one.sha256):
        if one.is_kept and one.data is not None:
            keep(tx, one.sha256, one.data)
        else:
            name_unkept(tx, one.sha256, one.size)


def _record(tx: Tx, write: _Write) -> int | None:
    """Write an intent, if the lease still stands."""
    if write.change is None or not ledger_of(tx).is_leased(write.job):
        return None
    return intend(tx, write.change)


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
