"""Apply file effects exactly once, whatever is killed in between (R20).

Every step on one path happens under the lock of its directory: close what an earlier attempt left open, record the
intent with the content before, replace the file, then mark the intent applied and settle the job in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from pydantic import JsonValue

from lcp_engine.engine.settling import Succeeded
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError, LeaseLost
from lcp_engine.jobs import State
from lcp_engine.sandbox.compose import compose
from lcp_engine.sandbox.replace import Current, Target, locked, temporary_name
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import changes_of, close_intent, intend, open_intents, sha256
from lcp_engine.store.database import Database
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.records import ChangeRow, JobRow
from lcp_engine.store.text import from_json, to_json
from lcp_engine.store.transaction import Tx
from lcp_engine.workers.base import Applied, FileEffect, Hold

CONFLICT = "conflict"


@dataclass(frozen=True)
class Journal:
    """Applies the effects of leased jobs. `settle` settles a job inside the transaction it is given."""

    database: Database
    settle: Callable[[Tx, JobRow, Succeeded | Failed | Hold], None]

    def perform(self, job: JobRow, effect: FileEffect, root: Root, cap: int) -> None:
        """Bring the file to what `effect` wants, once, and settle `job`. `cap` is in bytes. Raises `LeaseLost`."""
        try:
            with locked(root, effect.path) as target:
                self._perform(job, effect, root, target, cap)
        except LeaseLost:
            raise
        except LcpError as error:
            if error.code in OF_DATABASE:
                raise
            failed = error.failed
            self.database.write(lambda tx: self.settle(tx, copy(job), failed))

    def _perform(self, job: JobRow, effect: FileEffect, root: Root, target: Target, cap: int) -> None:
        self._close_open_intents(root, target)
        written = len(effect.content.encode())
        earlier = self.database.read(lambda tx: _earlier(tx, job, written))
        if earlier is not None:
            self.database.write(lambda tx: self.settle(tx, copy(job), earlier))
            return
        before = target.read(cap)
        data = compose(None if before is None else before.data, effect.content, effect.mode)
        if len(data) > cap:
            message = f"{effect.path!r} would have {len(data)} bytes, at most {cap} are written"
            raise LcpError(ErrorCode.TOO_LARGE, message)
        change, result = _intent(job, effect, root, target, before=before, data=data)
        change_id = self.database.write(lambda tx: _record(tx, job, change, before))
        try:
            target.replace(data, change.temporary)
        except LcpError as error:
            failed = error.failed
            left = "applied" if target.replaced else "void"
            self.database.write(lambda tx: self._settle_with(tx, change_id, left, job, failed))
            return
        done = Succeeded(result, written)
        self.database.write(lambda tx: self._settle_with(tx, change_id, "applied", job, done))

    def _settle_with(
        self, tx: Tx, change_id: int, state: str, job: JobRow, outcome: Succeeded | Failed
    ) -> None:
        """Close the intent and settle the job. The file is what it is, so the intent is closed without a lease too."""
        close_intent(tx, change_id, state)
        self.settle(tx, copy(job), outcome)

    def _close_open_intents(self, root: Root, target: Target) -> None:
        """Whoever takes the lock first says what became of intents that nobody closed."""
        left = self.database.read(lambda tx: open_intents(tx, root.path, target.path))
        if not left:
            return
        for change in left:
            target.discard(change.temporary)
        current = target.read(None)
        sha = None if current is None else current.sha256
        states = {change.id: _fate(change, sha) for change in left}

        def close(tx: Tx) -> None:
            for change_id, state in states.items():
                close_intent(tx, change_id, state)

        self.database.write(close)


def _fate(change: ChangeRow, sha: str | None) -> str:
    if sha == change.sha256_after:
        return "applied"
    return "void" if sha == change.sha256_before else CONFLICT


def _earlier(tx: Tx, job: JobRow, written: int) -> Succeeded | Hold | None:
    """What an earlier attempt of this job came to: done, whatever the file is by now; or in conflict.

    A conflict before the last approval is settled by it.
    """
    for change in changes_of(tx, job.id):
        if change.state == "applied":
            return Succeeded(from_json(change.result), written)
        if change.state == CONFLICT and change.attempt >= job.approved:
            return Hold(CONFLICT)
    return None


def _intent(
    job: JobRow, effect: FileEffect, root: Root, target: Target, *, before: Current | None, data: bytes
) -> tuple[ChangeRow, dict[str, JsonValue]]:
    sha_before = None if before is None else before.sha256
    applied = Applied(sha_before, sha256(data), len(data))
    result: dict[str, JsonValue] = effect.result(applied).model_dump(mode="json")
    change = ChangeRow(
        id=0,
        mission_id=job.mission_id,
        job_id=job.id,
        attempt=job.attempt,
        root=root.path,
        path=effect.path,
        mode=effect.mode,
        state="intent",
        sha256_before=sha_before,
        sha256_after=applied.sha256_after,
        size_bytes=len(data),
        temporary=temporary_name(),
        made=to_json(list(target.made)),
        result=to_json(result),
    )
    return change, result


def _record(tx: Tx, job: JobRow, change: ChangeRow, before: Current | None) -> int:
    """Write the intent, if the lease still stands. Raises `LeaseLost`."""
    now = ledger_of(tx).job(job.id)
    if now.state is not State.RUNNING or now.attempt != job.attempt:
        raise LeaseLost(job.id, job.attempt)
    return intend(tx, change, None if before is None else before.data)
