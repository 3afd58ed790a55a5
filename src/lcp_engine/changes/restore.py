"""Carry out the intents of an undo, each once, whatever is killed in between (R20).

An undo is decided when its intents are in the database; from then on whoever meets one finishes it. So an intent of
an undo is never void because its file is as before: that file is brought to what the intent says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from pydantic import BaseModel, JsonValue

from lcp_engine.core.job_states import SETTLED
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError
from lcp_engine.sandbox.atomic_write import Target
from lcp_engine.sandbox.confined_thread import Walls
from lcp_engine.sandbox.file_access import BareHands
from lcp_engine.sandbox.lock_many import Found, Place
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import changes_of, close_intent, content, deliver_again, what
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.workers.base import Context, Worker
from lcp_engine.workers.registry import UNDO_KIND

UNDO_SECONDS = 3600.0
APPLIED, CONFLICT, VOID = "applied", "conflict", "void"


class _Nothing(BaseModel):
    pass


def _refuse(params: _Nothing, context: Context) -> Failed:
    return Failed(ErrorCode.WORKER_FAILED, "an undo is carried out by the engine, not by a worker")


UNDO = Worker(
    kind=UNDO_KIND,
    params=_Nothing,
    result=_Nothing,
    execute=_refuse,
    description="Take changes of a mission back; made by the engine alone.",
    writes=True,
    timeout=UNDO_SECONDS,
).for_any_params()
"""How a runner knows the jobs that `carry_out` executes; no planner knows this kind."""


def carry_out(database: Database, job: JobRow, walls: Walls) -> Succeeded | Failed:
    """Finish every intent of an undo behind `walls`, then take away the directories that it left empty.

    Raises what another attempt may mend; at the last attempt what cannot be restored is left as it is and named.
    """
    is_last = job.failures + 1 >= job.max_attempts
    troubles: dict[int, Failed] = {}
    for change in database.read(lambda tx: changes_of(tx, job.id)):
        if change.state != "intent":
            continue
        try:
            _finish(database, change, walls)
        except LcpError as error:
            if error.code in OF_DATABASE or (error.failed.meaning.retry and not is_last):
                raise
            troubles[change.id] = error.failed
            _close(database, change, VOID)
    changes = database.read(lambda tx: changes_of(tx, job.id))
    _empty_directories(changes, walls)
    return _outcome(job, sorted(changes, key=lambda change: change.path), troubles)


def finish_within(database: Database, left: Iterable[ChangeRow], target: Target) -> None:
    """Bring a locked file to what those of the intents `left` say that belong to an undo; closing them is left."""
    for change in left:
        if change.undoes is not None:
            _bring(database, change, target)


def finish_if_free(database: Database, change: ChangeRow, root: Root, hands: BareHands, walls: Walls) -> None:
    """Finish an intent of an undo that nobody executes any more, unless somebody holds its directory."""
    try:
        with hands.locked_if_free(root, change.path) as target:
            if target is not None:
                _finish_at(database, change, target)
    except LcpError as error:
        if error.code is ErrorCode.PATH_NOT_FOUND:
            _finish(database, change, walls)  # nobody works in a directory that is not there
        elif error.code is ErrorCode.NOT_A_FILE:
            _close(database, change, CONFLICT)  # what was to be restored is nothing of ours any more
        else:
            raise


def _finish(database: Database, change: ChangeRow, walls: Walls) -> None:
    with (
        root_of(change.root) as root,
        walls.around(root, writes=True) as hands,
        _found(hands, root, change) as found,
    ):
        _finish_at(database, change, found)


@contextmanager
def _found(hands: BareHands, root: Root, change: ChangeRow) -> Iterator[Found]:
    """The file, its directory locked; for a file that comes back its directories are made."""
    if change.sha256_after is None:
        with hands.locked_together([Place(root, change.path)]) as (found,):
            yield found
    else:
        with hands.locked(root, change.path) as target:
            yield target


def _finish_at(database: Database, change: ChangeRow, found: Found) -> None:
    # Before the lock was held, somebody else may have finished it.
    if all(one.id != change.id or one.state != "intent" for one in _changes(database, change.job_id)):
        return
    if isinstance(found, LcpError):
        if found.code is not ErrorCode.PATH_NOT_FOUND:
            raise found
        _close(database, change, APPLIED)
        return
    state = APPLIED if _bring(database, change, found) else CONFLICT
    _close(database, change, state)


def _bring(database: Database, change: ChangeRow, target: Target) -> bool:
    """Whether the file is what the intent says; it is brought to that where it is as before."""
    target.discard(change.temporary)
    mark = target.mark()
    sha = None if mark is None else mark.sha256
    if sha == change.sha256_after:
        target.sync()  # whoever renamed it may have died before
        return True
    if sha != change.sha256_before:
        return False
    if change.sha256_after is None:
        target.remove()
        return True
    after = change.sha256_after
    data = database.read(lambda tx: content(tx, after))
    if data is None:
        raise LcpError(ErrorCode.NOT_FOUND, f"{change.path!r}: its content before is not in the database")
    target.replace(data, change.temporary, mode_of(change))
    return True


def root_of(path: str) -> Root:
    """The root that a change names, opened. Raises `LcpError` where its path is a link now, and leads elsewhere."""
    root = Root(path)
    if root.path != path:
        root.close()
        raise LcpError(ErrorCode.PATH_DENIED, f"root {path!r} is or passes a symbolic link now")
    return root


def mode_of(change: ChangeRow) -> int | None:
    """The mode bits for a file that comes back, as its intent states them."""
    mode = from_json(change.result).get("mode")
    return mode if isinstance(mode, int) else None


def _changes(database: Database, job_id: int) -> Sequence[ChangeRow]:
    return database.read(lambda tx: changes_of(tx, job_id))


def _close(database: Database, change: ChangeRow, state: str) -> None:
    def close(tx: Tx) -> None:
        ledger = ledger_of(tx)
        mission = ledger.mission(change.mission_id)
        if not close_intent(tx, change.id, state) or state != APPLIED:
            return
        if (
            ledger.job(change.job_id).state in SETTLED
        ):  # it was cancelled: it does not speak of this file any more
            mission.changed_seq = ledger.note(mission, "found_written", change.job_id, {"path": change.path})
        deliver_again(tx, mission.id)

    database.write(close)


def _empty_directories(changes: Sequence[ChangeRow], walls: Walls) -> None:
    """Take away what the mission made for files that are gone again."""
    left: dict[str, set[str]] = defaultdict(set)
    for change in changes:
        if change.state == APPLIED and change.sha256_after is None:
            left[change.root].update(_texts(change.made))
    for path, directories in left.items():
        with suppress(LcpError), root_of(path) as root, walls.around(root, writes=True) as hands:
            hands.remove_empty(root, directories)


def _texts(made: str) -> list[str]:
    import json

    return [str(directory) for directory in json.loads(made)]


def _outcome(job: JobRow, changes: Sequence[ChangeRow], troubles: dict[int, Failed]) -> Succeeded | Failed:
    states = {
        state: [change for change in changes if change.state == state] for state in (APPLIED, CONFLICT, VOID)
    }
    if not states[CONFLICT] and not states[VOID]:
        files: list[JsonValue] = [
            {"path": one.path, "change": what(one.sha256_before, one.sha256_after)} for one in changes
        ]
        summary = _summary([what(one.sha256_before, one.sha256_after) for one in changes])
        return Succeeded(
            to_json({"ok": True, "action": "undo_result", "summary": summary, "files": files}), 0
        )
    parts = [
        f"{change.path!r} was changed by somebody else meanwhile and is left alone"
        for change in states[CONFLICT]
    ]
    parts += [
        troubles[change.id].message if change.id in troubles else f"{change.path!r} could not be restored"
        for change in states[VOID]
    ]
    code = ErrorCode.CONFLICT if states[CONFLICT] else ErrorCode.FILE_SYSTEM
    if not states[CONFLICT] and troubles:
        code = next(iter(troubles.values())).code
    done = f"{len(states[APPLIED])} of {len(changes)} files are restored"
    return Failed(code, f"undo, job {job.id}: {done}; {'; '.join(parts)}")


def _summary(done: Sequence[str]) -> str:
    """What was done to the files, in a few words."""
    words = {"changed": "restored", "created": "put back", "removed": "removed"}
    counts = ((done.count(change), word) for change, word in words.items())
    return ", ".join(f"{count} {word}" for count, word in counts if count)
