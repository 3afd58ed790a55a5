"""Close intents that are still open: find out what became of a file, and carry out what an undo has decided (R20).

An intent is open from the transaction that records it until the one that notes the result. If its process died in
between, the next one to lock the file compares it with the hashes of the intent: it equals *after*, the intent is
applied; it equals *before*, nothing has happened; anything else is a conflict. The intents of an undo are decided once
they are recorded: a file that is still as *before* is then brought to *after*. So is the removal of a file that was
moved: its intent is recorded void, and opened by the transaction that marks its new file applied. Those of a merge and
of what a command changed are decided as well: what they lead to was kept (`kept_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lcp_engine.changes.kept_files import KeptFiles
from lcp_engine.changes.own_kinds import own_kind
from lcp_engine.core.job_states import SETTLED
from lcp_engine.errors import DatabaseFailed, ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import LockedFile
from lcp_engine.sandbox.file_access import ConfinedThreads, FileAccess
from lcp_engine.sandbox.locks import Wait
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import open_known
from lcp_engine.store.changes import (
    arrive,
    changes_of,
    close_intent,
    content,
    deliver_again,
    left_open,
)
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.queries.mission_spec import root_of_change
from lcp_engine.store.row_types import ChangeRow

INTENT, APPLIED, CONFLICT, VOID = "intent", "applied", "conflict", "void"
MERGE_MODE = "merge"
"""The mode of a change that a merge makes, with a content of the mission's stage."""
APPLY_MODE = "apply"
"""The mode of a change that a command made, with a content that was kept."""
MOVE = "move"
"""The mode of the two changes of a move: a new file, and then the old one, which is removed."""
MODES, KEPT = "modes", "kept"
"""Keys in the result of a change: `modes_of` it, and the directory where its new content is kept if it is large."""
MOST_HELD = 32 * 1024 * 1024
"""Bytes of contents, before and after, in memory: once a batch has that many, the rest is left for the next one."""


def close_intents(database: Database, left: Sequence[ChangeRow], file: LockedFile) -> None:
    """Close the open intents on a locked file, after those of an undo have been carried out."""
    states = {
        change.id: carry_out(database, change, file)
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
    return change.undoes is not None or change.mode in (MERGE_MODE, APPLY_MODE)


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
            with opened(database, change, threads) as (root, files):
                _close_if_free(database, change, root, files)
        except DatabaseFailed:
            raise
        except (LcpError, OSError):
            continue


def note_late_write(ledger: Ledger, job_id: int, path: str) -> None:
    """Note on its mission that a job had written a file, if the job was settled (cancelled) before that was found."""
    job = ledger.job(job_id)
    if job.state not in SETTLED:
        return
    mission = ledger.mission(job.mission_id)
    mission.changed_seq = ledger.note(mission, "found_written", job_id, {"path": path})
    deliver_again(ledger.tx, mission.id)


@contextmanager
def opened(
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


def carry_out(database: Database, change: ChangeRow, file: LockedFile) -> str:
    """Return what became of an intent on a locked file; one that is decided is carried out first.

    Of a change set, what was prepared beside the file is put in place.
    """
    state, modes = _carry_out_content(database, change, file), modes_of(change)
    if state == APPLIED and modes is not None and not file.set_mode(*modes) and is_of_mode_only(change):
        return CONFLICT
    mode = mode_of(change) if is_directory(change) and change.sha256_before is None else None
    if state == APPLIED and mode is not None and (made := file.digest()) is not None:
        file.set_mode(made.mode, mode)  # it may have been made for a file in it, which comes later
    return state


def _carry_out_content(database: Database, change: ChangeRow, file: LockedFile) -> str:
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
        file.replace(content_of(database, change), change.temporary, mode_of(change))
    except LcpError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise
        return VOID if is_directory(change) else CONFLICT
    return APPLIED


def mode_of(change: ChangeRow) -> int | None:
    """The mode bits of a file that a change makes; None for the system's default."""
    mode = from_json(change.result).get("mode")
    return mode if isinstance(mode, int) else None


def modes_of(change: ChangeRow) -> tuple[int, int] | None:
    """The mode bits that a file had and gets, if a change of a file that stays changes them."""
    match from_json(change.result).get(MODES):
        case [int(before), int(after)]:
            return before, after
        case _:
            return None


def is_of_mode_only(change: ChangeRow) -> bool:
    """True if the content of the file stays."""
    return change.sha256_before == change.sha256_after


def content_of(database: Database, change: ChangeRow) -> bytes | None:
    """Content that a decided change leads to; None if it removes the file. Raises `LcpError` if it is gone."""
    after = change.sha256_after
    if after is None:
        return None
    own = own_kind(change.mode)
    if own is not None and own.content is not None:
        return own.content(database, change)
    data, kept = database.read(lambda tx: content(tx, after)), from_json(change.result).get(KEPT)
    if data is None and isinstance(kept, str):
        data = KeptFiles(Path(kept)).read(after)
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
