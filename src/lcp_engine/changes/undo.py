"""Carry out what an undo decided: the job of the kind `undo` (R20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, JsonValue

from lcp_engine.changes.change_set import Carried, carry_out_all, decided, remove_empty_directories
from lcp_engine.changes.recovery import APPLIED, CONFLICT, INTENT, VOID, is_directory
from lcp_engine.core.kinds import UNDO as KIND
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import GENERAL, ErrorCode, Failed
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.sandbox.root_identity import Elsewhere
from lcp_engine.store.changes import changes_of, intend
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queries.file_changes import what
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.workers.base import ExecutedBy, Hold, Worker, refuse_to_execute

LEFT = "left"
"""What an undo does to a directory that is not empty."""
UNDO_SECONDS = 3600.0


class _Nothing(BaseModel):
    pass


UNDO = Worker(
    kind=KIND,
    params=_Nothing,
    result=_Nothing,
    execute=refuse_to_execute("an undo is carried out by the engine, not by a worker"),
    description="Take changes of a mission back; made by the engine alone.",
    writes=True,
    timeout=UNDO_SECONDS,
    executed_by=ExecutedBy.ENGINE,
).for_any_params()
"""The kind whose jobs `execute_undo` carries out; no planner knows it."""


def execute_undo(database: Database, job: JobRow, threads: ConfinedThreads) -> Succeeded | Failed | Hold:
    """Carry out every open intent of an undo, then remove the directories that it left empty.

    The newest change is taken back first: what was moved is always in one place, and directories are empty by then.
    Files on another machine hold the job. Raises errors that another attempt may not meet.
    """
    intents = database.read(lambda tx: decided(tx, job)) or database.write(lambda tx: _intend_again(tx, job))
    try:
        carried = carry_out_all(database, job, intents, threads, "undo")
    except Elsewhere:
        return Hold(ReasonCode.ELSEWHERE)
    if carried.refused is not None:
        message = f"undo, job {job.id}: no file is changed; {carried.refused.message}"
        return replace(carried.refused, message=message)
    remove_empty_directories(database, carried.changes, threads)
    return _outcome(job, carried)


def _intend_again(tx: Tx, job: JobRow) -> list[ChangeRow]:
    """Record the intents of an undo once more of which an earlier attempt could carry out none."""
    if not ledger_of(tx).is_leased(job):
        return []
    refused = {one.file: one for one in reversed(changes_of(tx, job.id))}.values()
    again = [replace(one, attempt=job.attempt, state=INTENT, temporary=temporary_name()) for one in refused]
    return [replace(one, id=intend(tx, one)) for one in again]


def _outcome(job: JobRow, carried: Carried) -> Succeeded | Failed:
    changes = sorted(carried.changes, key=lambda change: change.path)
    errors = carried.errors
    conflicts = [change for change in changes if change.state == CONFLICT]
    left = [one for one in changes if one.state == VOID and is_directory(one) and one.id not in errors]
    void = [change for change in changes if change.state == VOID and change not in left]
    if not conflicts and not void:
        done = [
            (change.path, LEFT if change in left else what(change.sha256_before, change.sha256_after))
            for change in changes
        ]
        files: list[JsonValue] = [{"path": path, "change": change} for path, change in done]
        summary = _summary([change for _, change in done])
        return Succeeded(
            to_json({"ok": True, "action": "undo_result", "summary": summary, "files": files}), 0
        )
    parts = [f"{change.path!r} has been changed in the meantime and is left alone" for change in conflicts]
    parts += [
        errors[change.id].message if change.id in errors else f"{change.path!r} could not be restored"
        for change in void
    ]
    codes = [*(failed.code for failed in errors.values()), ErrorCode.FILE_SYSTEM]
    code = ErrorCode.CONFLICT if conflicts else codes[0]
    restored = sum(change.state == APPLIED for change in changes)
    return Failed(
        code,
        f"undo, job {job.id}: {restored} of {len(changes)} files are restored; {'; '.join(parts)}",
        advice=GENERAL,
    )


def _summary(done: Sequence[str]) -> str:
    """Numbers of files that were restored, put back and removed."""
    words = {"changed": "restored", "created": "put back", "removed": "removed", LEFT: "left"}
    counts = ((done.count(change), word) for change, word in words.items())
    return ", ".join(f"{count} {word}" for count, word in counts if count)
