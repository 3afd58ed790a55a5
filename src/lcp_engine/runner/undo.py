"""Take changes back: find what to restore, check every file under its lock, decide all or none, carry it out (R20)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain

from lcp_engine.changes.change_set import Content, Target, close_others, digest_of, keep_contents
from lcp_engine.changes.recovery import MODES, close_left_open, mode_of, modes_of, open_root
from lcp_engine.changes.show import show_restored
from lcp_engine.changes.undo import UNDO
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.core.job_states import OPEN, State
from lcp_engine.core.json_values import int_in, list_in, object_in
from lcp_engine.core.paths.change_history import Effect, Timeline, timeline
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import observers
from lcp_engine.engine.progress import refresh
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.feature import find_code
from lcp_engine.runner.runner import Runner
from lcp_engine.sandbox.atomic_write import LockedFile
from lcp_engine.sandbox.file_access import Patience, confined_threads, lock_all
from lcp_engine.sandbox.locks import Held
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import (
    applied_changes_of_files,
    changes_of,
    kept_size,
    missing_blobs,
    open_intents_of_mission,
)
from lcp_engine.store.db.json_text import JsonObject, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, NewJobRow, ledger_of
from lcp_engine.store.queries.file_changes import effects_of, what
from lcp_engine.store.queries.history import find_job, known_id
from lcp_engine.store.queries.mission_spec import root_of_change
from lcp_engine.store.queue import find_jobs, live_jobs
from lcp_engine.store.row_types import ChangeRow

ATTEMPTS = 3
PRIORITY = 100
"""Before all other jobs of its mission, so that they find the restored files."""

WAIT_SECONDS = 30.0
"""How long an undo waits for writes that are under way."""

_TRIES = 10


@dataclass(frozen=True)
class Undo:
    """The result of an undo. `job_id` is its job: None for a dry run, and if there was nothing to undo.

    `resumed`: the job of an earlier undo that had been interrupted, and was finished first. `shown` names what
    a dry run has found.
    """

    mission_id: int
    job_id: int | None
    files: tuple[JsonObject, ...]
    dry_run: bool = False
    resumed: int | None = None
    shown: str | None = None

    @property
    def json(self) -> JsonObject:
        return {**vars(self), "files": [*self.files]}


def undo(
    instance: Instance,
    mission_id: int | None = None,
    *,
    job_id: int | None = None,
    dry_run: bool = False,
    shown: str | None = None,
    by: str,
) -> Undo:
    """Restore files to what they were before a mission, or before one job; with `shown`, only what a dry run named so.

    An earlier undo of the mission that was interrupted is finished first, and writes that are under way are waited for.
    Raises `NOT_FOUND`; `WRONG_STATE` while jobs of the mission are queued or running, or if a write takes longer than
    `WAIT_SECONDS`; `CONFLICT` if a file is not as the last change left it, a job outside this undo has changed it
    since, or this is not what was `shown`: then nothing has been done. Raises like `finish_undo`.
    """
    scope = instance.read(find_scope, mission_id, job_id)
    resumed = instance.database.write(lambda tx: open_undo(ledger_of(tx), scope.mission_id))
    if resumed is not None and not dry_run:
        _carry_out(instance, scope.mission_id)
    instance.database.write(lambda tx: check_quiet(ledger_of(tx), scope))
    _finish_writes(instance, scope)
    for _ in range(_TRIES):
        wanted = instance.read(restorations, scope, shown)
        files = tuple(one.json for one in wanted)
        planned = Undo(scope.mission_id, None, files, dry_run, resumed, _mark_of(scope, wanted))
        if not wanted:
            return planned
        decided = _decide(instance, scope, wanted, dry_run=dry_run, by=by)
        if decided is not None:
            break
    else:
        message = f"{scope.name} was changed {_TRIES} times during the undo"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice="Undo it when no runner works on it.")
    return planned if dry_run else finish_undo(instance, decided, resumed=resumed)


def undo_diffs(
    instance: Instance, mission_id: int | None = None, *, job_id: int | None = None, shown: str | None = None
) -> list[Diff]:
    """Diffs of what an undo would change, file by file. Raises `NOT_FOUND`, and `CONFLICT` like `undo`."""
    scope = instance.read(find_scope, mission_id, job_id)
    wanted = instance.read(restorations, scope, shown)
    known = {
        (path, place): instance.read(root_of_change, scope.mission_id, path, place)
        for path, place in {(one.root, one.place) for one in wanted}
    }
    roots = ((one, known[one.root, one.place]) for one in wanted)
    return [show_restored(instance, root, one.path, one.before, one.after) for one, root in roots]


# -- wait for what is under way


def _finish_writes(instance: Instance, scope: Scope) -> None:
    """Wait until no write of the mission is under way: a cancelled job may have begun one.

    What a killed runner left open is closed. Raises `WRONG_STATE`, and the error of a root that cannot be opened.
    """
    patience = Patience(WAIT_SECONDS)
    while True:
        close_left_open(instance.database, scope.mission_id, confined_threads(instance.isolation))
        left = instance.database.read(lambda tx: open_intents_of_mission(tx, scope.mission_id))
        for root, place in {(change.root, change.root_identity) for change in left}:
            open_root(instance.database, scope.mission_id, root, place).close()
        if not left:
            return
        if patience.is_over():
            raise _still_written(scope, f"job {left[0].job_id} is still writing {left[0].path!r}")


def _still_written(scope: Scope, fact: str) -> LcpError:
    message = f"{scope.name} cannot be undone yet: {fact} after {WAIT_SECONDS:g} s"
    advice = "Undo it again when that write has ended; a runner that is suspended has to go on or end first."
    return LcpError(ErrorCode.WRONG_STATE, message, advice=advice)


# -- what to restore


@dataclass(frozen=True)
class Scope:
    """Scope of an undo: everything of a mission, or what one job of it did."""

    mission_id: int
    job_id: int | None = None

    @property
    def name(self) -> str:
        return f"mission {self.mission_id}" if self.job_id is None else f"job {self.job_id}"

    def covers(self, change: ChangeRow) -> bool:
        """True if a change is taken back; undos of a mission are not part of what the mission did."""
        if self.job_id is not None:
            return change.job_id == self.job_id
        return change.mission_id == self.mission_id and change.undoes is None


def find_scope(tx: Tx, mission_id: int | None, job_id: int | None) -> Scope:
    """The scope of an undo. Raises `NOT_FOUND`, and `INVALID_ARGUMENT` unless one of both is given."""
    if (mission_id is None) == (job_id is None):
        raise LcpError(ErrorCode.INVALID_ARGUMENT, "undo takes either a mission or a job", advice=GENERAL)
    if mission_id is not None:
        return Scope(known_id("mission", mission_id))
    found = find_jobs(tx, [known_id("job", job_id or 0)])
    if not found:
        raise LcpError(ErrorCode.NOT_FOUND, f"job {job_id} is not in the database")
    return Scope(found[0].mission_id, job_id)


def open_undo(ledger: Ledger, mission_id: int) -> int | None:
    """The job of an undo of the mission that has been decided and has not ended."""
    mission = ledger.mission(mission_id)
    found = (job.id for job in live_jobs(ledger, mission) if job.kind == UNDO.kind and job.state in OPEN)
    return next(found, None)


def check_quiet(ledger: Ledger, scope: Scope) -> None:
    """Raises `WRONG_STATE` if jobs of the mission are queued or running, `NOT_FOUND` if there is no such mission."""
    mission = ledger.mission(scope.mission_id)
    if mission.queued + mission.running == 0:
        return
    counts = [(mission.queued, "queued"), (mission.running, "running")]
    fact = " and ".join(f"{count} {word}" for count, word in counts if count)
    message = f"mission {mission.id} must have no queued or running jobs for an undo; it has {fact}"
    advice = f"Wait until its jobs have run, or cancel mission {mission.id} first."
    raise LcpError(ErrorCode.WRONG_STATE, message, advice=advice)


def restorations(tx: Tx, scope: Scope, shown: str | None = None) -> list[Target]:
    """The files to restore, the newest change first; empty if nothing is left to take back.

    Raises `CONFLICT` if a later change of another job is still on a file, or a content before was not kept, or if this
    is not what was `shown`.
    """
    rows = {row.id: row for row in applied_changes_of_files(tx, scope.mission_id)}
    effects = {one.id: one for one in effects_of((_effect(row), row.root_identity) for row in rows.values())}
    history = timeline(effects.values())
    first: dict[str, ChangeRow] = {}
    for row in rows.values():
        if scope.covers(row) and row.id not in history.undone_by:
            first.setdefault(effects[row.id].file, row)
    later = {
        row.path: fault
        for row in first.values()
        if (fault := _later_change(scope, history, rows, effects[row.id])) is not None
    }
    lost = {
        row.path: f"{row.path!r} cannot come back: its content before job {row.job_id} was too large to keep"
        for file, row in first.items()
        if row.sha256_before not in (None, rows[history.last[file].id].sha256_after)
        and kept_size(tx, row.sha256_before or "") is None
    }
    if later or lost:
        raise _refusal(scope, {**later, **lost})
    made = {
        (row.root, directory)
        for row in rows.values()
        if row.mission_id == scope.mission_id
        and row.undoes is None  # those of an undo are directories to remove
        for directory in map(str, json.loads(row.made))
    }
    modes: dict[str, list[tuple[int, int]]] = {file: [] for file in first}
    for row in rows.values():
        file, bits = effects[row.id].file, modes_of(row)
        if bits is not None and file in first and row.id >= first[file].id:
            modes[file].append(bits)
    found = [_target(tx, row, rows[history.last[file].id], made, modes[file]) for file, row in first.items()]
    found.sort(key=lambda one: -(one.undoes or 0))
    if shown not in (None, _mark_of(scope, found)):
        message = f"the undo of {scope.name} has changed since it was shown; nothing was restored"
        raise LcpError(ErrorCode.CONFLICT, message, advice="See what it would do now, then decide on that.")
    return found


def _mark_of(scope: Scope, wanted: Sequence[Target]) -> str:
    stated = json.dumps([asdict(scope), *map(asdict, wanted)])
    return hashlib.sha256(stated.encode()).hexdigest()[:32]


def _effect(row: ChangeRow) -> Effect:
    return Effect(row.id, row.mission_id, row.job_id, row.file, row.undoes)


def _later_change(
    scope: Scope, history: Timeline, rows: Mapping[int, ChangeRow], first: Effect
) -> str | None:
    """Names the change outside this undo that has been made to the file since `first`, if there is one."""
    if first.undoes is not None:
        by = None if history.is_as_after(first) else history.last[first.file]
    else:
        since = (one for one in history.standing(first.file) if one.id > first.id)
        by = next((one for one in since if not scope.covers(rows[one.id])), None)
    if by is None:
        return None
    return f"{rows[first.id].path!r} was changed since by job {by.job_id} of mission {by.mission_id}"


def _target(
    tx: Tx, first: ChangeRow, last: ChangeRow, made: set[tuple[str, str]], modes: Sequence[tuple[int, int]]
) -> Target:
    parents = [first.path[:at] for at, letter in enumerate(first.path) if letter == "/"]
    is_gone = first.sha256_before is None
    removed = first.undoes is not None or first.sha256_after is None
    return Target(
        first.root, first.root_identity, first.path, last.sha256_after, first.sha256_before,
        0 if first.sha256_before is None else kept_size(tx, first.sha256_before) or 0,
        modes[0][0] if modes else mode_of(first) if removed else None,
        tuple(parent for parent in parents if is_gone and (first.root, parent) in made),
        first.id,
        facts={MODES: [modes[-1][1], modes[0][0]]} if modes else {},
    )  # fmt: skip


# -- check the files, and decide


def _decide(instance: Instance, scope: Scope, wanted: list[Target], *, dry_run: bool, by: str) -> int | None:
    """Under the locks of all files: check them, and record the intents. The job's id, 0 for a dry run.

    None if the files were changed by jobs before they were locked, or writes to them had been left open. Raises
    `CONFLICT`, `WRONG_STATE`.
    """
    with _locked(instance, scope, wanted) as found:
        is_closed = close_others(instance.database, [(one.file, one.place) for one in wanted], found)
        if is_closed or instance.read(restorations, scope) != wanted:
            return None
        targets = _checked(scope, wanted, found)
        if dry_run:
            return 0
        contents = (
            _replaced(scope, one, held)
            for one, held in zip(wanted, found, strict=True)
            if one.before is not None and isinstance(held, LockedFile)
        )
        hashes = keep_contents(instance.database, contents)

        def decide(ledger: Ledger) -> int:
            if missing_blobs(ledger.tx, hashes, keeps=True):
                raise _Pruned
            return _record(ledger, scope, targets, by=by)

        try:
            return instance.write(decide)
        except _Pruned:
            return None


class _Pruned(Exception):
    """A prune has removed contents that nothing referred to yet; nothing was recorded."""


@contextmanager
def _locked(instance: Instance, scope: Scope, wanted: Sequence[Target]) -> Iterator[list[Held]]:
    """The files of `wanted`, all locked; for one whose root cannot be opened, the reason."""
    roots: dict[str, Root] = {}
    refused: dict[str, LcpError] = {}
    with ExitStack() as stack:
        for path, place in {(one.root, one.place) for one in wanted}:
            try:
                root = open_root(instance.database, scope.mission_id, path, place)
                roots[path] = stack.enter_context(root)
            except LcpError as error:
                if error.code in (ErrorCode.ROOT_CHANGED, ErrorCode.PATH_NOT_FOUND):
                    raise
                refused[path] = error
        threads = confined_threads(instance.isolation)
        files = stack.enter_context(threads.access(*roots.values(), writes=True))
        paths = {one.file: (roots[one.root], one.path) for one in wanted if one.root in roots}
        locked = stack.enter_context(lock_all(files, [*paths.values()], Patience(WAIT_SECONDS)))
        if locked is None:
            names = [repr(path) for _, path in paths.values()]
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            raise _still_written(scope, f"a file in the directory of {shown} is being written")
        found = dict(zip(paths, locked, strict=True))
        yield [refused[one.root] if one.root in refused else found[one.file] for one in wanted]


def _checked(scope: Scope, wanted: Sequence[Target], found: Sequence[Held]) -> list[Target]:
    """The targets, with the mode bits of files that are removed.

    Raises `CONFLICT` that names each file that is not as the last change left it.
    """
    targets: list[Target] = []
    faults: dict[str, str] = {}
    for one, held in zip(wanted, found, strict=True):
        try:
            digest = digest_of(held)
        except LcpError as error:
            faults[one.path] = error.failed.message
            continue
        is_removed = digest is not None and one.after is None
        targets.append(replace(one, mode=digest.mode) if digest is not None and is_removed else one)
        if digest is None and one.path.endswith("/") and one.after is None:
            continue  # a directory that is gone already
        if (None if digest is None else digest.sha256) != one.before:
            faults[one.path] = _difference(one, is_there=digest is not None)
    if faults:
        raise _refusal(scope, faults)
    return targets


def _difference(one: Target, *, is_there: bool) -> str:
    if not is_there:
        return f"{one.path!r} is gone; the last change left a file there"
    if one.before is None:
        return f"{one.path!r} is there; the last change removed it"
    return f"{one.path!r} has been changed since the last change of a job"


def _replaced(scope: Scope, one: Target, file: LockedFile) -> Content:
    """The content that is about to be replaced, so that the undo can be undone."""
    current = file.read(None)
    if current is None and one.path.endswith("/"):  # as `_checked` found it
        return Content(one.before or "", 0, b"", one.file)
    if current is None or current.sha256 != one.before:  # a program that takes no locks may write at any time
        raise _refusal(scope, {one.path: _difference(one, is_there=current is not None)})
    return Content(current.sha256, len(current.data), current.data, one.file)


def _refusal(scope: Scope, faults: Mapping[str, str]) -> LcpError:
    """Reason why nothing is undone, by path."""
    message = f"{scope.name} cannot be undone: {'; '.join(faults.values())}"
    advice = "Keep the newer content, or put back what the job wrote, then undo it again."
    return LcpError(ErrorCode.CONFLICT, message, {"files": list(faults)}, advice)


def _record(ledger: Ledger, scope: Scope, targets: Sequence[Target], *, by: str) -> int:
    """Record the intents of an undo and queue its job: the commit decides it. The job's id.

    Raises `WRONG_STATE` like `check_quiet`.
    """
    check_quiet(ledger, scope)
    mission = ledger.mission(scope.mission_id)
    of: JsonObject = {"mission": scope.mission_id} if scope.job_id is None else {"job": scope.job_id}
    new = NewJobRow(
        name=f"undo {scope.name}",
        kind=UNDO.kind,
        params=to_json(of),
        priority=PRIORITY,
        max_attempts=ATTEMPTS,
    )
    job_id = ledger.create(mission, new)
    ledger.note(mission, "decided", job_id, {"by": by, "decision": "undo", **of})
    for one in targets:
        one.intend(ledger.tx, mission.id, job_id, 1, "remove" if one.after is None else "restore")
    refresh(ledger, mission)
    return job_id


# -- carry it out


def _carry_out(instance: Instance, mission_id: int) -> None:
    """Run the undo's job in this process, and what features have follow it."""
    kinds = (UNDO.kind, *chain.from_iterable(one.kinds for one in observers()))
    Runner(instance, mission_id=mission_id, kinds=kinds, until_idle=True).run()


def finish_undo(instance: Instance, job_id: int, *, resumed: int | None = None) -> Undo:
    """The undo that a job was created for, carried out now unless a runner has done it.

    Raises `WRONG_STATE` for a job of another kind, and for one that was cancelled or is held. If a file was changed, or
    the file system refused, after all files were checked, raises the error of the job, which names the files that are
    not restored.
    """
    decided = instance.read(find_job, job_id)
    if decided["kind"] != UNDO.kind:
        raise LcpError(ErrorCode.WRONG_STATE, f"job {job_id} is not an undo", advice=GENERAL)
    mission_id = int_in(decided["mission_id"])
    if decided["state"] in OPEN:
        _carry_out(instance, mission_id)
    job, changes = instance.read(find_job, job_id), instance.read(changes_of, job_id)
    error, result = job["error"], object_in(job["result"])
    if isinstance(error, dict):
        code = find_code(str(error["error_code"])) or ErrorCode.WORKER_FAILED
        raise LcpError(code, str(error["user_message"]), advice=GENERAL)
    if (state := job["state"]) != State.SUCCEEDED:
        raise LcpError(ErrorCode.WRONG_STATE, f"undo, job {job_id}, is {state}", advice=GENERAL)
    done = {file["path"]: file["change"] for file in map(object_in, list_in(result.get("files")))}
    planned = {one.path: what(one.sha256_before, one.sha256_after) for one in reversed(changes)}
    files = ({"path": path, "change": done.get(path, change)} for path, change in planned.items())
    return Undo(mission_id, job_id, tuple(files), resumed=resumed)
