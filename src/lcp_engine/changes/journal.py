"""Apply file effects exactly once, whatever is killed in between (R20).

Every step on a file happens under the lock of its directory: close intents that an earlier attempt left open, record an
intent with the content before, replace the file, then mark the intent applied and settle the job in one transaction.
Effects of one mission that are applied together share these transactions. A job that waits for a lock is given back
after a while, so that waiting uses up none of its attempts; and a file is replaced only within some seconds of a look
at the lease, so that no job changes a file after it was given up (a runner may be suspended).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Protocol

from lcp_engine.changes.recovery import (
    APPLIED,
    CONFLICT,
    INTENT,
    MOST_HELD,
    MOVE,
    VOID,
    close_intents,
    note_late_write,
)
from lcp_engine.clock import SECOND, Micros, since_start
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.people.approvals import Drifted, drift_of, note_drift
from lcp_engine.errors import DatabaseFailed, ErrorCode, Failed, LcpError
from lcp_engine.sandbox.atomic_write import LockedFile, temporary_name
from lcp_engine.sandbox.file_access import HERE, FileAccess, Interrupted
from lcp_engine.sandbox.locks import LockedFiles, Put, Wait
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import is_on_network, is_same_place, place_of
from lcp_engine.store import queue
from lcp_engine.store.changes import (
    arrive,
    changes_of,
    close_intent,
    intend,
    is_undone,
    keep,
    name_unkept,
    open_intents,
    stored_bytes,
)
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.roots import claim_root
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.people import was_held_for
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.workers.base import Caps, FileEffect, Hold, applied_of, too_large_to_change

BUSY_SECONDS = 2
"""A job whose file is busy is tried again after so long."""
FRESH_SECONDS = queue.LEASE_SECONDS / 2
"""For so long it counts that a job is leased; for a file that takes longer to write, longer."""


@dataclass(frozen=True)
class JobEffect:
    """The effect of a leased job."""

    job: JobRow
    effect: FileEffect


class Tracker(Protocol):
    """Reports of a thread about the jobs that it executes together."""

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

    `settle` settles a job inside the transaction it is given. Replaced contents of up to `keeps` bytes are kept, so
    that the change can be undone. `files` accesses the files; `tracker` learns when the file of a job is accessed.
    A job whose file is busy is given back if it `may_repeat`, since it is then executed again; others wait. In a
    stage, `is_private`, nothing is a change of the mission's root. Of a file that a job may not read, by `may_read`, no
    outcome tells what is in it.
    """

    database: Database
    settle: Callable[[Tx, JobRow, Succeeded | Failed | Hold], None]
    root: Root
    cap: int = Caps.write_bytes
    keeps: int = Caps.preimage_bytes
    files: FileAccess = HERE
    tracker: Tracker = UNTRACKED
    may_repeat: bool = True
    is_private: bool = False
    may_read: Callable[[str], bool] = lambda path: True

    def perform(self, effects: Sequence[JobEffect]) -> None:
        """Apply effects, each once and in their order for each file, and settle their jobs.

        A job that lost its lease, or was given back, is left out. Raises `DatabaseFailed`, and `Interrupted` for more
        than one effect: performed alone, each finds out what became of its file.
        """
        left = list(effects)
        while left := self._without_twins(left):
            self.tracker.pause(effect.job for effect in left)
            left = self._perform_batch(left)

    def _perform_batch(self, effects: Sequence[JobEffect]) -> list[JobEffect]:
        """Perform those whose locks are free; the others, for the next batch."""
        if not self.tracker.start(effects[0].job):  # the lock of its file is waited for
            return list(effects[1:])
        later: list[JobEffect] = []
        refused: list[tuple[JobEffect, Drifted | LcpError]] = []
        wait = Wait.SHORTLY if self.may_repeat else Wait.FIRST
        if not self.may_repeat:
            self.tracker.pause(one.job for one in effects)  # waiting is charged to nobody
        try:
            paths = [(self.root, path) for one in effects for path in one.effect.paths]
            with self.files.lock(paths, wait, together=len(effects[0].effect.paths)) as locked:
                if all(held is None for held in locked.found):
                    self._give_back(effects, ReasonCode.FILE_BUSY)
                    return []
                writes: list[_Write] = []
                found = iter(locked.found)
                for one in effects:
                    held = list(islice(found, len(one.effect.paths)))
                    files = [file for file in held if isinstance(file, LockedFile)]
                    error = next((file for file in held if isinstance(file, LcpError)), None)
                    if error is not None:
                        refused.append((one, error))
                    elif len(files) == len(held):
                        writes.append(_Write(one, files))
                    else:
                        later.append(one)
                later = [*self._write(writes, locked), *later]
        except Interrupted as error:
            if len(effects) > 1:
                raise
            # The intent stays open: the next attempt, or else maintenance, finds out what became of the file.
            interrupted, job = error.failed, effects[0].job
            self.database.write(lambda tx: self.settle(tx, job.copy(), interrupted))
            return later
        # After the lock: directories that were created for a refused file are removed with it.
        refused += [(write.source, write.refusal) for write in writes if write.refusal is not None]
        for one, refusal in refused:
            self._refuse(one, refusal)
        return later

    def _without_twins(self, effects: Sequence[JobEffect]) -> list[JobEffect]:
        """Refuses the jobs whose paths would look like others, before any directory is made; returns the others."""
        left = []
        for one in effects:
            try:
                one.effect.check_names(self.root)
                left.append(one)
            except LcpError as refusal:
                self._refuse(one, refusal)
        return left

    def _give_back(self, effects: Sequence[JobEffect], reason: ReasonCode) -> None:
        """Queue jobs again whose files others may be writing: no attempt is charged."""

        def release(tx: Tx) -> None:
            ledger = ledger_of(tx)
            ledger.lock(one.job.mission_id for one in effects)
            for one in effects:
                later = tx.now + BUSY_SECONDS * SECOND
                queue.release(ledger, one.job.copy(), because(reason), run_after=later)

        self.database.write(release)

    def _write(self, writes: Sequence[_Write], locked: LockedFiles) -> list[JobEffect]:
        """Write and settle all that are not refused; those whose contents would be too much at once are left."""
        self._recover(writes)
        held, left = 0, list[JobEffect]()
        for write in writes:
            if write.outcome is None and held >= MOST_HELD:
                left.append(write.source)
            elif write.outcome is None and self.tracker.start(write.job):
                self._prepare(write)
                held += write.held
        intended = [write for write in writes if write.change is not None]
        looked = since_start()
        if not self._intend(intended):
            self._give_back([write.source for write in intended], ReasonCode.NETWORK_ROOT)
        recorded = [write for write in intended if write.change is not None and write.change.id]
        self._put_while_leased(locked, recorded, looked)
        self._depart(locked, [write for write in recorded if write.departure and write.state == APPLIED])
        settled = [write for write in writes if write.outcome is not None]
        if settled:
            self.database.write(lambda tx: self._settle(tx, settled))
        return left

    def _recover(self, writes: Sequence[_Write]) -> None:
        """Close intents that were left open on the files, and find the outcomes of earlier attempts."""

        def look(
            tx: Tx,
        ) -> list[tuple[list[tuple[LockedFile, Sequence[ChangeRow]]], Succeeded | Hold | None]]:
            made = [(write, changes_of(tx, write.job.id)) for write in writes]
            return [
                (
                    [(file, left) for file in write.files if (left := self._left_open(tx, file, own))],
                    _earlier_outcome(tx, write, own),
                )
                for write, own in made
            ]

        found = self.database.read(look)
        while any(open_ for open_, _ in found):  # again after a move has arrived, which opens another one
            for open_, _ in found:
                for file, left in open_:
                    close_intents(self.database, left, file)
            found = self.database.read(look)
        for write, (_, earlier) in zip(writes, found, strict=True):
            write.outcome = earlier
            if isinstance(earlier, Succeeded):
                for file in write.files:
                    file.sync()  # the attempt may have failed because of that

    def _left_open(self, tx: Tx, file: LockedFile, own: Sequence[ChangeRow]) -> Sequence[ChangeRow]:
        """The open intents on a file; those of the job itself may name it by the path that its root had elsewhere."""
        place = place_of(self.root)
        found = [*open_intents(tx, self._file(file), place)]
        mine = [
            one
            for one in own
            if one.state == INTENT and one.path == file.path and is_same_place(one.root_identity, place)
        ]
        return [*found, *(one for one in mine if one not in found)]

    def _prepare(self, write: _Write) -> None:
        """Read what the effect replaces and make the new content; or note why it is not written."""
        try:
            self._compose(write)
        except (Interrupted, DatabaseFailed):
            raise
        except LcpError as error:
            write.refusal = error if self.may_read(write.subject.path) else _untold(write.subject.path, error)

    def _compose(self, write: _Write) -> None:
        effect = write.effect
        effect.check_names(self.root)  # again: a job of another thread may have made its twin before the lock
        before = self._read_before(write)
        if isinstance(before, Hold):
            write.outcome = before
            return
        if effect.is_done(is_there=before is not None):
            applied = applied_of(before, b"")
            write.outcome = Succeeded(to_json(effect.result(applied).model_dump(mode="json")), 0)
            return
        write.refusal = self._drift(write.source, None if before is None else before.sha256)
        if write.refusal is not None:
            return
        content = None if before is None else before.data
        write.data = effect.compose(content, self.cap, is_there=before is not None)
        write.before = before
        if effect.mode == MOVE:
            self._check_move(write)
        write.change = self._intent(write)
        if effect.mode == MOVE:
            write.departure = _departure(write, self._file(write.subject))

    def _check_move(self, write: _Write) -> None:
        """Raises `LcpError` if a file has the new name, or the old one could not be removed."""
        write.effect.check_free(is_there=write.file.read_within(0) is not None)
        write.subject.check_removable()

    def _read_before(self, write: _Write) -> _Before | Hold | None:
        """Content that the effect replaces, None if there is no file.

        A content that is too large to keep holds the job, unless a person approved it after it was held for that.
        Raises `TOO_LARGE` for a change within a file that is above the cap already.
        """
        file, there = write.subject, write.subject.read_within(self.keeps)
        if there is None:
            return None
        if not isinstance(there, int):
            return _Before(there.sha256, len(there.data), there.data, True, there.mode)
        if write.effect.needs_content and there > self.cap:
            raise LcpError.of(too_large_to_change(file.path, there, self.cap))
        if not self.database.read(lambda tx: was_held_for(tx, write.job, ReasonCode.IRREVERSIBLE)):
            return Hold(because(ReasonCode.IRREVERSIBLE, size=there, most=self.keeps))
        if there > self.cap:
            digest = file.digest()
            return None if digest is None else _Before(digest.sha256, there, None, False, digest.mode)
        current = file.read(self.cap)
        if current is None:
            return None
        return _Before(current.sha256, len(current.data), current.data, False, current.mode)

    def _intend(self, writes: Sequence[_Write]) -> bool:
        """Record the intents of the jobs that are still leased. False if only another machine may write to the root."""

        def record(tx: Tx) -> list[tuple[int, int] | None] | None:
            ledger = ledger_of(tx)
            ledger.lock(write.job.mission_id for write in writes)
            root = ledger.mission(writes[0].job.mission_id).root
            if is_on_network(self.root) and root is not None and not claim_root(tx, root):
                return None
            _keep(tx, writes)
            return [_record(tx, write) for write in writes]

        if not writes:
            return True
        recorded = self.database.write(record)
        for write, ids in zip(writes, recorded or [None] * len(writes), strict=True):
            write.note_ids(ids)
        return recorded is not None

    def _put_while_leased(self, locked: LockedFiles, writes: Sequence[_Write], looked: Micros) -> None:
        """Replace the files of jobs that are leased; `looked` is when they were, in `since_start`."""
        fresh = FRESH_SECONDS
        while writes:
            late = self._put(locked, writes, looked + int(fresh * SECOND))
            looked, fresh = since_start(), 2 * fresh
            writes = self.database.write(partial(_leased, writes=late)) if late else []

    def _put(self, locked: LockedFiles, writes: Sequence[_Write], until: Micros) -> list[_Write]:
        """Replace the files; those for which it was too late are unchanged."""
        puts = [
            Put(write.file, write.data, write.change.temporary, until, write.new_mode)
            for write in writes
            if write.change is not None
        ]
        late: list[_Write] = []
        errors = locked.put(puts, lambda nth: self.tracker.start(writes[nth].job))
        for write, error in zip(writes, errors, strict=True):
            assert write.change is not None
            if error is None:
                write.outcome, write.state = Succeeded(write.change.result, write.written), APPLIED
            elif error.code is ErrorCode.TIMEOUT:
                write.outcome, write.state = error.failed, VOID
                late.append(write)
            else:
                is_conflict = error.code is ErrorCode.CONFLICT
                write.outcome = Hold(ReasonCode.CONFLICT) if is_conflict else error.failed
                write.state = APPLIED if write.file.replaced else CONFLICT if is_conflict else VOID
                if write.departure is not None and write.file.replaced:
                    write.state = INTENT  # who finds it makes it durable, before the old file is removed
        return late

    def _depart(self, locked: LockedFiles, moved: Sequence[_Write]) -> None:
        """Remove files whose new ones are durable: noted first, so that whoever finds them carries it out."""
        if not moved:
            return
        self.database.write(partial(_arrive, writes=moved))
        puts = [
            Put(write.subject, None, write.departure.temporary)
            for write in moved
            if write.departure is not None
        ]
        errors = locked.put(puts, lambda nth: self.tracker.start(moved[nth].job))
        for write, error in zip(moved, errors, strict=True):
            write.has_arrived = True
            if error is None:
                continue
            is_conflict = error.code is ErrorCode.CONFLICT
            write.outcome = Hold(ReasonCode.CONFLICT) if is_conflict else error.failed
            write.state = INTENT if error.failed.meaning.retry else CONFLICT

    def _settle(self, tx: Tx, writes: Sequence[_Write]) -> None:
        """Close intents and settle jobs. An intent is closed even if the lease is lost: the file is what it is."""
        ledger = ledger_of(tx)
        ledger.lock(write.job.mission_id for write in writes)
        for write in writes:
            assert write.outcome is not None
            change = write.departure if write.has_arrived else write.change
            if change is None or not change.id or write.state == INTENT:
                pass
            elif close_intent(tx, change.id, write.state) and write.state == APPLIED:
                note_late_write(ledger, write.job.id, change.path)
            self.settle(tx, write.job.copy(), write.outcome)

    def _refuse(self, one: JobEffect, refusal: Drifted | LcpError) -> None:
        """Hold the job if the file has changed since its approval, else let it fail."""
        if isinstance(refusal, Drifted):
            drifted: Drifted | None = refusal
        else:
            drifted = self._drift(one, self._found(one.effect.paths[0]))
        if drifted is not None:
            self.database.write(lambda tx: self._hold_again(tx, one.job, drifted))
        elif isinstance(refusal, LcpError):
            failed = refusal.failed
            self.database.write(lambda tx: self.settle(tx, one.job.copy(), failed))

    def _hold_again(self, tx: Tx, job: JobRow, drifted: Drifted) -> None:
        note_drift(ledger_of(tx), job, drifted)
        self.settle(tx, job.copy(), Hold(ReasonCode.DRIFT))

    def _drift(self, one: JobEffect, found: str | None) -> Drifted | None:
        if not one.job.approved:
            return None
        path = one.effect.paths[0]
        file = os.path.normpath(f"{self.root.path}/{path}")
        return self.database.read(lambda tx: drift_of(tx, one.job, file, path, found))

    def _found(self, path: str) -> str | None:
        """The hash of the file, None if there is none, or the code of the error why it cannot be read."""
        try:
            current = self.files.read_unlocked(self.root, path, self.cap)
        except Interrupted:
            raise
        except LcpError as error:
            return error.code
        return None if current is None else current.sha256

    def _intent(self, write: _Write) -> ChangeRow:
        effect = write.effect
        content = None if write.before is None else write.before.data
        applied = applied_of(write.before, write.data, effect.encodings(content, write.data))
        told = applied if self.may_read(write.subject.path) else applied.untold()
        return ChangeRow(
            id=0,
            mission_id=write.job.mission_id,
            job_id=write.job.id,
            attempt=write.job.attempt,
            root=self.root.path,
            path=effect.path,
            file=self._file(write.file),
            mode=effect.mode,
            state=INTENT,
            sha256_before=None if effect.mode == MOVE else applied.sha256_before,
            sha256_after=applied.sha256_after,
            size_bytes=applied.size_bytes,
            temporary=temporary_name(),
            made=to_json(list(write.file.made)),
            result=to_json(effect.result(told).model_dump(mode="json")),
            undoes=None,
            root_identity=place_of(self.root),
            staged=1 if self.is_private else None,
        )

    def _file(self, file: LockedFile) -> str:
        """The absolute path of the file. Neither the root's path nor the one beneath it passes a link."""
        return os.path.normpath(f"{self.root.path}/{file.path}")


_OF_CONTENT = frozenset(
    {ErrorCode.BINARY, ErrorCode.INVALID_PARAMS, ErrorCode.NO_SINGLE_MATCH, ErrorCode.TOO_LARGE}
)
"""Errors that tell what is in a file."""


def _untold(path: str, error: LcpError) -> LcpError:
    """The error, if it does not tell what is in the file; else one that only names the file."""
    if error.code not in _OF_CONTENT:
        return error
    message = f"{path!r} is not changed: its content, which may not be read without a person, does not fit"
    advice = "Ask a person about the file, or replace it as a whole in ASCII."
    return LcpError(ErrorCode.NOT_ALLOWED, message, advice=advice)


@dataclass(frozen=True)
class _Before:
    """A file before it is replaced. `data` is None if it is too large to read; `is_kept`: it can be restored."""

    sha256: str
    size: int
    data: bytes | None
    is_kept: bool
    mode: int


@dataclass
class _Write:
    """The progress of an effect on locked files, until it is settled with `outcome` or there is a `refusal`.

    `departure` is the change of a file that is moved; `has_arrived`: its new file is there, and that is noted.
    """

    source: JobEffect
    files: Sequence[LockedFile]
    outcome: Succeeded | Failed | Hold | None = None
    refusal: Drifted | LcpError | None = None
    before: _Before | None = None
    data: bytes | None = b""
    change: ChangeRow | None = None
    departure: ChangeRow | None = None
    has_arrived: bool = False
    state: str = APPLIED
    kept: int = 0

    @property
    def subject(self) -> LockedFile:
        """The file whose content matters."""
        return self.files[0]

    @property
    def file(self) -> LockedFile:
        """The file that is written."""
        return self.files[-1]

    @property
    def new_mode(self) -> int | None:
        """The mode bits of a new file; None for the system's default."""
        return self.before.mode if self.departure is not None and self.before is not None else None

    def note_ids(self, ids: tuple[int, int] | None) -> None:
        """Note the ids of its changes in the database."""
        if ids is not None and self.change is not None:
            self.change = replace(self.change, id=ids[0])
            self.departure = None if self.departure is None else replace(self.departure, id=ids[1])

    @property
    def job(self) -> JobRow:
        return self.source.job

    @property
    def effect(self) -> FileEffect:
        return self.source.effect

    @property
    def held(self) -> int:
        """Bytes of content in memory."""
        before = self.before.data if self.before is not None else None
        return len(self.data or b"") + len(before or b"")

    @property
    def written(self) -> int:
        """Bytes that count toward the limit: those that are written, and those that are kept of the file before."""
        return len(self.effect.content.encode()) + self.kept


def _keep(tx: Tx, writes: Iterable[_Write]) -> None:
    """Keep the contents before, in the order of their hashes, so that two that keep the same ones never deadlock."""
    replaced = [(write, write.before) for write in writes if write.before is not None]
    for write, before in sorted(replaced, key=lambda one: one[1].sha256):
        if before.is_kept and before.data is not None:
            assert write.change is not None
            write.kept = keep(tx, before.sha256, before.data, (write.departure or write.change).file)
        else:
            name_unkept(tx, before.sha256, before.size)


def _leased(tx: Tx, writes: Sequence[_Write]) -> list[_Write]:
    return [write for write in writes if ledger_of(tx).is_leased(write.job)]


def _departure(write: _Write, file: str) -> ChangeRow:
    """The change of the file that is moved, which is void until its new file is there."""
    assert write.change is not None
    assert write.before is not None
    return replace(
        write.change,
        path=write.subject.path,
        file=file,
        state=VOID,
        sha256_before=write.before.sha256,
        sha256_after=None,
        size_bytes=0,
        temporary=temporary_name(),
        made=to_json([]),
        result=to_json({"mode": write.before.mode}),
    )


def _record(tx: Tx, write: _Write) -> tuple[int, int] | None:
    """Record the intent, and the departure if there is one, if its job is still leased; their ids."""
    if write.change is None or not ledger_of(tx).is_leased(write.job):
        return None
    first = intend(tx, write.change)
    return first, 0 if write.departure is None else intend(tx, write.departure)


def _arrive(tx: Tx, writes: Sequence[_Write]) -> None:
    """Note that the new files of moves are there: from now on the old ones are to be removed."""
    ledger = ledger_of(tx)
    ledger.lock(write.job.mission_id for write in writes)
    for write in writes:
        if write.change is not None and arrive(tx, write.change):
            note_late_write(ledger, write.job.id, write.change.path)


def _earlier_outcome(tx: Tx, write: _Write, own: Sequence[ChangeRow]) -> Succeeded | Hold | None:
    """The outcome of an earlier attempt of the job: done, whatever the file is now; or in conflict.

    What was undone since is to be done again. An intent that could not be closed here is one of another machine. The
    last approval settles these and conflicts before it. Of a move, the file that left decides, which is newer.
    """
    change = next((one for one in own if one.state != VOID), None)
    if change is None:
        return None
    if change.state == APPLIED:
        if is_undone(tx, change):
            return None
        first = next(one for one in reversed(own) if one.attempt == change.attempt)
        write.kept = stored_bytes(tx, change.sha256_before) if change.sha256_before else 0
        return Succeeded(first.result, write.written)
    if change.attempt < write.job.approved:
        return None
    return Hold(ReasonCode.CONFLICT if change.state == CONFLICT else ReasonCode.ELSEWHERE)
