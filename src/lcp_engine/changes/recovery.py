"""Close intents that are still open: find out what became of a file, and carry out what an undo has decided (R20).

An intent is open from the transaction that records it until the one that notes the result. If its process died in
between, the next one to lock the file compares it with the hashes of the intent: it equals *after*, the intent is
applied; it equals *before*, nothing has happened; anything else is a conflict. The intents of an undo are decided once
they are recorded: a file that is still as *before* is then brought to *after*. So is the removal of a file that was
moved: its intent is recorded void, and opened by the transaction that marks its new file applied. Those of a merge are
decided as well: what they lead to was kept (`merge_contents`).
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from pydantic import BaseModel, JsonValue

from lcp_engine.changes.merge_contents import merged_content, stage_if_there
from lcp_engine.core.job_states import SETTLED
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import GENERAL, DatabaseFailed, ErrorCode, Failed, LcpError
from lcp_engine.sandbox.atomic_write import LockedFile, temporary_name
from lcp_engine.sandbox.file_access import HERE, ConfinedThreads, FileAccess
from lcp_engine.sandbox.locks import Wait
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import Elsewhere, open_known
from lcp_engine.store.changes import (
    arrive,
    changes_of,
    close_intent,
    content,
    deliver_again,
    intend,
    left_open,
)
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.queries.file_changes import what
from lcp_engine.store.queries.mission_spec import root_of_change
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.store.stages import stage_of
from lcp_engine.workers.base import ExecutedBy, Hold, Worker, refuse_to_execute
from lcp_engine.workers.registry import UNDO_KIND

INTENT, APPLIED, CONFLICT, VOID = "intent", "applied", "conflict", "void"
MERGE_MODE = "merge"
"""The mode of a change that a merge makes, with a content of the mission's stage."""
MOVE = "move"
"""The mode of the two changes of a move: a new file, and then the old one, which is removed."""
LEFT = "left"
"""What an undo does to a directory that is not empty."""
MOST_HELD = 32 * 1024 * 1024
"""Bytes of contents, before and after, in memory: once a batch has that many, the rest is left for the next one."""
UNDO_SECONDS = 3600.0
Contents: TypeAlias = Callable[[ChangeRow], bytes | None]
"""Finds what a decided change leads to; None where there is to be no file. Raises `LcpError` if it is gone."""


class _Nothing(BaseModel):
    pass


UNDO = Worker(
    kind=UNDO_KIND,
    params=_Nothing,
    result=_Nothing,
    execute=refuse_to_execute("an undo is carried out by the engine, not by a worker"),
    description="Take changes of a mission back; made by the engine alone.",
    writes=True,
    timeout=UNDO_SECONDS,
    executed_by=ExecutedBy.ENGINE,
).for_any_params()
"""The kind whose jobs `execute_undo` carries out; no planner knows it."""


def close_intents(database: Database, left: Sequence[ChangeRow], file: LockedFile) -> None:
    """Close the open intents on a locked file, after those of an undo have been carried out."""
    contents = partial(_content_of, database)
    states = {
        change.id: carry_out(change, file, contents)
        for change in sorted(left, key=lambda change: not is_decided(change))
    }
    close_all(database, left, states)


def is_directory(change: ChangeRow) -> bool:
    """True if it is the change of a directory."""
    return change.path.endswith("/")


def is_decided(change: ChangeRow) -> bool:
    """True if whoever finds the intent carries it out: that of an undo, a merge, or the removal of a moved file."""
    return _is_whole(change) or (change.mode == MOVE and change.sha256_after is None)


def _is_whole(change: ChangeRow) -> bool:
    """True if it is one of several that were decided together, whatever file is there by now."""
    return change.undoes is not None or change.mode == MERGE_MODE


def close_left_open(database: Database, mission_id: int, threads: ConfinedThreads) -> None:
    """Close the intents of a mission's jobs that are not running: a retry may never come to do it.

    Waits for no lock, but for the file systems of its roots. Raises `DatabaseFailed`.
    """
    left = [change for change in database.read(left_open) if change.mission_id == mission_id]
    close_each(database, left, threads)


def close_each(database: Database, changes: Iterable[ChangeRow], threads: ConfinedThreads) -> None:
    """Close some intents of jobs that are not running.

    Skips files whose directory is locked or whose root cannot be opened, or is on another machine. Raises
    `DatabaseFailed`.
    """
    for change in changes:
        try:
            with _opened(database, change, threads) as (root, files):
                _close_if_free(database, change, root, files)
        except DatabaseFailed:
            raise
        except (LcpError, OSError):
            continue


def execute_undo(database: Database, job: JobRow, threads: ConfinedThreads) -> Succeeded | Failed | Hold:
    """Carry out every open intent of an undo, then remove the directories that it left empty.

    First all contents are written beside their files: a disk that has no room for them changes none. Files on another
    machine are left to the runners there, and the job is held. Raises errors that another attempt may not meet; the
    last attempt skips the file and names it.
    """
    is_last = job.failures + 1 >= job.max_attempts
    errors: dict[int, Failed] = {}
    # The newest change is taken back first: what was moved is always in one place, and directories are empty by then.
    intents = _prepared(database, job, threads, is_last=is_last)
    if isinstance(intents, Failed):
        return intents
    made = {change.id for change in intents}
    for change in intents:
        if change.state != INTENT:
            continue
        try:
            with _opened(database, change, threads) as (root, files):
                _restore(database, change, root, files)
        except DatabaseFailed:
            raise
        except Elsewhere:
            return Hold(ReasonCode.ELSEWHERE)
        except LcpError as error:
            if error.failed.meaning.retry and not is_last:
                raise
            errors[change.id] = error.failed
            close_all(database, [change], {change.id: VOID})
    changes = [one for one in database.read(lambda tx: changes_of(tx, job.id)) if one.id in made]
    _remove_empty_directories(database, changes, threads)
    return _outcome(job, sorted(changes, key=lambda change: change.path), errors)


def _prepared(
    database: Database, job: JobRow, threads: ConfinedThreads, *, is_last: bool
) -> list[ChangeRow] | Failed:
    """The intents of an undo, the newest change first, with all contents written beside their files.

    Raises errors that another attempt may not meet.
    """
    found = reversed(database.read(lambda tx: changes_of(tx, job.id)))
    intents = [*{change.file: change for change in found}.values()]
    if all(change.state == VOID for change in intents):
        intents = database.write(partial(_intend_again, job=job, refused=intents))
    if any(change.state != INTENT for change in intents):
        return intents
    refused = _write_beside(database, intents, threads, job.attempt)
    if refused is None:
        return intents
    # Not left open for another attempt: whoever finds an intent carries it out, a file at a time.
    close_all(database, intents, {change.id: VOID for change in intents})
    if refused.failed.meaning.retry and not is_last:
        raise refused
    return replace(
        refused.failed, message=f"undo, job {job.id}: no file is changed; {refused.failed.message}"
    )


def _intend_again(tx: Tx, job: JobRow, refused: Sequence[ChangeRow]) -> list[ChangeRow]:
    """Record the intents of an undo once more of which an earlier attempt could carry out none."""
    if not ledger_of(tx).is_leased(job):
        return []
    again = [replace(one, attempt=job.attempt, state=INTENT, temporary=temporary_name()) for one in refused]
    return [replace(one, id=intend(tx, one)) for one in again]


def _write_beside(
    database: Database, intents: Sequence[ChangeRow], threads: ConfinedThreads, attempt: int
) -> LcpError | None:
    """Write the contents of an undo beside their files. Why a disk refused one, if no file has been changed yet."""
    of_roots: dict[tuple[int, str, str | None], list[ChangeRow]] = defaultdict(list)
    for change in intents:
        of_roots[change.mission_id, change.root, change.root_identity].append(change)
    written: list[tuple[Beside, Sequence[ChangeRow]]] = []
    with ExitStack() as stack:
        for of_root, changes in of_roots.items():
            try:
                root = stack.enter_context(open_root(database, *of_root))
                access = stack.enter_context(threads.access(root, writes=True))
            except DatabaseFailed:
                raise
            except LcpError:
                continue  # it is met again, and named, when the files are restored
            beside = Beside(root, access, partial(_content_of, database))
            written.append((beside, changes))
            refused = _no_room(root, changes, attempt) or beside.prepare(changes)
            if refused is not None and not any(one.has_begun for one, _ in written):
                for one, some in written:
                    one.remove(some)
                return refused
    return None


def _no_room(root: Root, changes: Sequence[ChangeRow], attempt: int) -> LcpError | None:
    """The error of a disk without room for an undo; an earlier attempt that was killed may have taken it already."""
    if any(one.attempt != attempt for one in changes):
        return None
    try:
        check_room(root, sum(one.size_bytes for one in changes if one.sha256_after is not None), "undo")
    except LcpError as refused:
        return refused
    return None


def note_late_write(ledger: Ledger, job_id: int, path: str) -> None:
    """Note on its mission that a job had written a file, if the job was settled (cancelled) before that was found."""
    job = ledger.job(job_id)
    if job.state not in SETTLED:
        return
    mission = ledger.mission(job.mission_id)
    mission.changed_seq = ledger.note(mission, "found_written", job_id, {"path": path})
    deliver_again(ledger.tx, mission.id)


@contextmanager
def _opened(
    database: Database, change: ChangeRow, threads: ConfinedThreads
) -> Iterator[tuple[Root, FileAccess]]:
    """The root of a change, and what can write in it."""
    with (
        open_root(database, change.mission_id, change.root, change.root_identity) as root,
        threads.access(root, writes=True) as files,
    ):
        yield root, files


def open_root(database: Database, mission_id: int, path: str, place: str | None) -> Root:
    """The root at `path` that a change of a mission in `place` names.

    Raises `ROOT_CHANGED` if it is another one now, `Elsewhere` if `place` is on another machine.
    """
    return open_known(database.read(lambda tx: root_of_change(tx, mission_id, path, place)))


def carry_out(change: ChangeRow, file: LockedFile, contents: Contents) -> str:
    """Return what became of an intent on a locked file; one that is decided is carried out first.

    Of a merge or an undo, what was prepared beside the file is put in place.
    """
    if _is_whole(change) and change.sha256_after is not None:
        try:
            if file.put_prepared(change.temporary, change.sha256_before, change.sha256_after):
                file.sync()
                return APPLIED
        except LcpError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
            return CONFLICT
    file.mend(change.temporary, change.sha256_before, change.sha256_after)
    digest = file.digest()
    sha = None if digest is None else digest.sha256
    if sha == change.sha256_after:
        file.sync()  # the process that renamed it may have died before it did that
        return APPLIED
    if sha != change.sha256_before:
        return CONFLICT
    if not is_decided(change):
        return VOID
    try:
        file.replace(contents(change), change.temporary, mode_of(change))
    except LcpError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise
        return VOID if is_directory(change) else CONFLICT
    return APPLIED


def mode_of(change: ChangeRow) -> int | None:
    """The mode bits of a file that a change makes; None for the system's default."""
    mode = from_json(change.result).get("mode")
    return mode if isinstance(mode, int) else None


def _content_of(database: Database, change: ChangeRow) -> bytes | None:
    after = change.sha256_after
    if after is None:
        return None
    if change.mode == MERGE_MODE:
        row = database.read(lambda tx: stage_of(tx, change.mission_id))
        with stage_if_there(row) as stage:
            return merged_content(database, HERE, stage, change)
    data = database.read(lambda tx: content(tx, after))
    if data is None:
        message = f"{change.path!r}: its content before is not in the database"
        advice = (
            "Restore the file from a backup; contents above caps.preimage_bytes and pruned ones are not kept."
        )
        raise LcpError(ErrorCode.NOT_FOUND, message, advice=advice)
    return data


def close_all(database: Database, left: Sequence[ChangeRow], states: Mapping[int, str]) -> None:
    """Close intents with their new `states`, by id."""

    def close(tx: Tx) -> None:
        ledger = ledger_of(tx)
        ledger.lock(change.mission_id for change in left)
        whole: set[int] = set()
        for change in left:
            state = states[change.id]
            has_arrived = state == APPLIED and change.mode == MOVE
            is_closed = arrive(tx, change) if has_arrived else close_intent(tx, change.id, state)
            if not is_closed or state != APPLIED:
                continue
            note_late_write(ledger, change.job_id, change.path)
            if _is_whole(change):
                whole.add(change.mission_id)
        for mission_id in sorted(whole):
            deliver_again(tx, mission_id)

    database.write(close)


def _close_if_free(database: Database, change: ChangeRow, root: Root, files: FileAccess) -> None:
    try:
        with files.lock([(root, change.path)], Wait.NONE) as locked:
            (held,) = locked.found
            if isinstance(held, LcpError):
                raise held
            # Since the intent was read, another process may have closed it, or started its job again.
            if held is not None and any(one.id == change.id for one in database.read(left_open)):
                close_intents(database, [change], held)
    except LcpError as error:
        match error.code:
            case ErrorCode.PATH_NOT_FOUND if _is_whole(change):
                _restore(database, change, root, files)  # a missing directory has no lock to hold
            case ErrorCode.PATH_NOT_FOUND:
                state = VOID if change.sha256_before is None else CONFLICT
                state = APPLIED if change.sha256_after is None else state
                close_all(database, [change], {change.id: state})
            case ErrorCode.NOT_A_FILE:
                close_all(database, [change], {change.id: CONFLICT})
            case ErrorCode.PATH_DENIED if change.undoes is None:
                close_all(database, [change], {change.id: CONFLICT})
            case _:
                raise


def _restore(database: Database, change: ChangeRow, root: Root, files: FileAccess) -> None:
    """Carry out an open intent of an undo or a merge; for a file that comes back, its directories are created."""
    wait = Wait.ALL if change.sha256_after is None else Wait.FIRST
    with files.lock([(root, change.path)], wait) as locked:
        (held,) = locked.found
        intents = (
            one for one in database.read(lambda tx: changes_of(tx, change.job_id)) if one.state == INTENT
        )
        if all(one.id != change.id for one in intents):
            return  # another process carried it out before the lock was granted
        if isinstance(held, LockedFile):
            close_intents(database, [change], held)
        elif held is not None and change.sha256_after is None and held.code is ErrorCode.PATH_NOT_FOUND:
            close_all(database, [change], {change.id: APPLIED})
        elif held is not None:
            raise held


@dataclass
class Beside:
    """New contents of open intents of a merge or an undo, written beside the files that they are for.

    `has_begun` once one of the files is found changed already.
    """

    root: Root
    access: FileAccess
    contents: Contents
    has_begun: bool = False
    _made: set[str] = field(default_factory=set)

    def prepare(self, left: Sequence[ChangeRow]) -> LcpError | None:
        """Write them all. Why the disk refused one, if no file has been changed yet: then none is left there."""
        pending = [one for one in left if one.sha256_after is not None]
        while pending:
            some = first_of(pending)
            later: list[ChangeRow] = []
            with self.access.lock([(self.root, one.path) for one in some], Wait.FIRST) as locked:
                for change, held in zip(some, locked.found, strict=True):
                    if held is None:
                        later.append(change)
                        continue
                    try:
                        self.has_begun |= self._prepare_one(change, held)
                    except LcpError as error:
                        refused = error
                        break
                else:
                    pending = [*later, *pending[len(some) :]]
                    continue
            if not self.has_begun:
                self.remove(left)
                return refused
            return None  # what was begun is finished, file by file
        return None

    def _prepare_one(self, change: ChangeRow, held: LockedFile | LcpError) -> bool:
        """Write one; True if its file has been changed already. Raises what the file system refuses."""
        assert change.sha256_after is not None
        if isinstance(held, LcpError):
            if held.code in _REFUSED:
                raise held
            return False  # a conflict, which is found when it is carried out
        self._made.update(held.made)
        if held.is_prepared(change.temporary, change.sha256_after):
            return False
        held.mend(change.temporary, change.sha256_before, change.sha256_after)
        digest = held.digest()
        sha = None if digest is None else digest.sha256
        if sha != change.sha256_before:
            return sha == change.sha256_after
        try:
            data = self.contents(change)
        except LcpError:  # it is gone, which is found when it is carried out
            return False
        if data is not None:
            held.prepare(data, change.temporary, mode_of(change))
        return False

    def remove(self, left: Sequence[ChangeRow]) -> None:
        """Remove what was written, with the directories that were made for it."""
        for change in left:
            with suppress(LcpError), self.access.lock([(self.root, change.path)], Wait.ALL) as locked:
                (held,) = locked.found
                if isinstance(held, LockedFile):
                    held.mend(change.temporary, change.sha256_before, change.sha256_after)
        made = {str(one) for change in left if change.mode == MERGE_MODE for one in json.loads(change.made)}
        self.access.remove_empty(self.root, made | self._made)


_REFUSED = frozenset({ErrorCode.FILE_SYSTEM, ErrorCode.PATH_DENIED})


def first_of(changes: Sequence[ChangeRow]) -> list[ChangeRow]:
    """The first ones, whose contents fit into memory."""
    some, size = list[ChangeRow](), 0
    for change in changes:
        if some and size + change.size_bytes > MOST_HELD:
            break
        some.append(change)
        size += change.size_bytes
    return some


def check_room(root: Root, size: int, action: str) -> None:
    """Raise `FILE_SYSTEM` if the disk has certainly no room for so many bytes beside what is there."""
    disk = os.fstatvfs(root.descriptor)
    free = disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)
    if disk.f_blocks and size > free:
        message = f"the disk of {root.path!r} has {free:,} bytes free, and the {action} needs {size:,}"
        advice = f"Free space on that disk, then {'approve' if action == 'merge' else 'repeat'} the {action}."
        raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=advice)


def _remove_empty_directories(
    database: Database, changes: Sequence[ChangeRow], threads: ConfinedThreads
) -> None:
    """Remove what the mission created for files that are gone again."""
    made: dict[tuple[int, str, str | None], set[str]] = defaultdict(set)
    for change in changes:
        if change.state == APPLIED and change.sha256_after is None:
            of_root = (change.mission_id, change.root, change.root_identity)
            made[of_root].update(map(str, json.loads(change.made)))
    for of_root, directories in made.items():
        with (
            suppress(LcpError),
            open_root(database, *of_root) as root,
            threads.access(root, writes=True) as files,
        ):
            files.remove_empty(root, directories)


def _outcome(job: JobRow, changes: Sequence[ChangeRow], errors: Mapping[int, Failed]) -> Succeeded | Failed:
    conflicts = [change for change in changes if change.state == CONFLICT]
    left = [change for change in changes if change.state == VOID and is_directory(change)]
    left = [change for change in left if change.id not in errors]
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
    code = ErrorCode.CONFLICT if conflicts else ErrorCode.FILE_SYSTEM
    if not conflicts and errors:
        code = next(iter(errors.values())).code
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
