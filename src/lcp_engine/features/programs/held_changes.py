"""Hold what a command changed until a person decides on it, then apply it: all that was shown, or nothing (R20, R25).

The command's own upper directory is kept beside a list of the changes, on the machine where it ran. The job has the
hash of the list, which has those of all contents. A directory that no job waits with any more is removed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from lcp_engine.changes.change_set import Carried, Reasons, counted, has_drifted, in_words
from lcp_engine.changes.own_kinds import LeasedJob, OwnKind, Params
from lcp_engine.changes.set_view import SetView, data_of, difference, new_mode_in_words
from lcp_engine.changes.unified_diff import Contents, Diff
from lcp_engine.core.policy import Policy, Ruling, Verdict
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import HeldRequest, Succeeded
from lcp_engine.engine.points import Chore
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.programs.apply import Apply, Changed, finish
from lcp_engine.features.programs.apply_worker import APPLY, AppliedFile, ApplyParams, ApplyResult
from lcp_engine.features.programs.store import is_needed
from lcp_engine.sandbox.atomic_write import Snapshot
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.file_access import FileAccess, confined_threads
from lcp_engine.sandbox.root import Root, refusal
from lcp_engine.sandbox.root_identity import open_known, this_machine
from lcp_engine.sandbox.system.own_places import make_private
from lcp_engine.sandbox.system.syscalls import sync_file_system
from lcp_engine.store.changes import sha256
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import fingerprint, from_json, to_json
from lcp_engine.store.people import Sight
from lcp_engine.store.queries.file_changes import what
from lcp_engine.store.queries.mission_spec import changed_root
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Hold
from lcp_engine.workers.delete_file import WORKER as DELETE_FILE
from lcp_engine.workers.write_file import WRITE_FILE

PATH = "what it applies"
"""The file that an approval of it names."""
KEY = "held_as_job"
"""The key of a command's result that names the job which applies what it changed."""
LOOK_SECONDS = 10.0
"""How often a runner looks for changes that no job waits to apply."""
_HEAD = ("--- the root", "+++ the root with what the command changed")
_NOTHING = "the root has all of it already"
_REASONS = Reasons(ReasonCode.APPLY_CONFLICT, ReasonCode.APPLY_REFUSED)
_HELD, _LIST, _FILES = "held", "changes.json", "files"
_NAME = re.compile(r"[1-9][0-9]*-[1-9][0-9]*", re.ASCII)
_LISTED = TypeAdapter(list[tuple[str, str | None, str | None, int | None, int | None]])
_AGAIN = "Reject it, and run the command again."

Judge = Callable[[str, bool], Ruling]
"""The ruling on a path that is written, or is deleted."""


def hold_changes(
    instance: Instance, job: JobRow, root: Root, up: Path, changed: Sequence[Changed]
) -> HeldRequest:
    """Keep what the command of the leased `job` changed, by moving its upper directory; the job that is to apply it.

    Raises `FILE_SYSTEM`.
    """
    assert instance.walls is not None
    name = f"{job.id}-{job.attempt}"
    listed = to_json([[*astuple(one)] for one in changed])
    place = instance.walls / _HELD / name
    try:
        make_private(place.parent)
        remove_tree(place)
        make_private(place)
        (place / _LIST).write_text(listed, encoding="utf-8")
        up.rename(place / _FILES)
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_file_system(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise refusal(error, str(place)) from error
    stated = ApplyParams(job=job.id, held=name, machine=this_machine(), digest=sha256(listed.encode()))
    params = stated.model_dump(mode="json")
    with _opened(instance, stated) as held, confined_threads(instance.isolation).access(root) as access:
        digest = _compared(held, root, access, 0).digest
    count = len(changed)
    return HeldRequest(
        APPLY.kind,
        f"what job {job.id} changed",
        params,
        APPLY.max_attempts,
        because(ReasonCode.APPLY, job=job.id, files=f"{count:,} file{'' if count == 1 else 's'}"),
        Sight(fingerprint(APPLY.kind, params), PATH, digest, instance.database.now()),
        KEY,
    )


def view_held(instance: Instance, mission_id: int, params: Params) -> SetView:
    """View of what a job that applies a command's changes would do now, or why it cannot be done."""
    try:
        with _met(instance, mission_id, params) as (held, root, access):
            found = _compared(held, root, access, instance.caps.write_bytes)
            diffs = tuple(_diff(one, held, access, instance) for one in found.files)
    except LcpError as error:
        return SetView((), error.code, error.failed, PATH, _HEAD, error.failed.message)
    return SetView(diffs, found.digest, found.conflict, PATH, _HEAD, _NOTHING)


def held_contents(instance: Instance, mission_id: int, path: str, params: Params) -> Contents | None:
    """Contents that the diff of a file compares; None for a file that is too large, or that the command did not change.

    Raises what keeps all of it from being shown.
    """
    with _met(instance, mission_id, params) as (held, root, access):
        changed = next((one for one in held.changed if one.path == path), None)
        if changed is None:
            return None
        cap = instance.caps.write_bytes
        sides = _read(changed, root, access, cap).now, _left(changed, held, access, cap)
    is_cut = any(side is not None and side.data is None for side in sides)
    return None if is_cut else Contents(*map(data_of, sides))


@contextmanager
def _met(instance: Instance, mission_id: int, params: Params) -> Iterator[tuple[_Held, Root, FileAccess]]:
    """Changes of a command, the root that they meet, and access to both."""
    known = instance.database.read(lambda tx: changed_root(tx, mission_id))
    assert known is not None
    with (
        _opened(instance, _params(params)) as held,
        open_known(known) as root,
        confined_threads(instance.isolation).access(root, held.source) as access,
    ):
        yield held, root, access


def execute_apply(leased: LeasedJob) -> Succeeded | Hold | Failed:
    """Apply what a command changed, if a person approved exactly that; else, and in conflicts, it is held again.

    Raises errors that another attempt may not meet; the last attempt holds the job.
    """
    judge = judge_of(leased.policy())
    try:
        return _execute(leased, judge)
    except LcpError as error:
        return _REASONS.refusal_of(leased.row, error)


def judge_of(policy: Policy) -> Judge:
    """The judge of what commands change in a mission with this policy."""
    writes, deletes = (
        policy.for_kind(worker.named, has_effects=True, writes=True)
        for worker in (WRITE_FILE.for_any_params(), DELETE_FILE.for_any_params())
    )
    return lambda path, is_deleted: (deletes if is_deleted else writes)(path)


def remove_held(database: Database, walls: Path) -> None:
    """Remove the changes of commands that no job waits to apply."""
    try:
        found = [place for place in (walls / _HELD).iterdir() if _NAME.fullmatch(place.name)]
    except OSError:  # nothing was ever held, or it is another user's
        return
    for place in found:
        if not database.read(partial(is_needed, name=place.name)):
            with suppress(OSError):
                remove_tree(place)


def chores(instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> Iterator[Chore]:
    if (walls := instance.walls) is not None:
        remove = partial(remove_held, instance.database, walls)
        yield Chore(
            name="held changes", do=remove, seconds=LOOK_SECONDS, is_quick=False, is_first=True, finish=remove
        )


# -- what is held, and what it meets


@dataclass(frozen=True)
class _Held:
    """The changes of a command, with the files that it left."""

    place: Path
    source: Root
    changed: Sequence[Changed]
    digest: str


@contextmanager
def _opened(instance: Instance, params: ApplyParams) -> Iterator[_Held]:
    """Raises `NOT_FOUND` if they are not on this machine, `CONFLICT` if they are others than those of the job."""
    if params.machine != this_machine():
        message = f"what job {params.job} changed is kept on another machine, {params.machine}"
        advice = "Look at it, and decide on it, there; a runner of that machine applies it."
        raise LcpError(ErrorCode.NOT_FOUND, message, advice=advice)
    place = Path() if instance.walls is None else instance.walls / _HELD / params.held
    try:
        listed = (place / _LIST).read_bytes()
        source = Root(str(place / _FILES))
    except (OSError, LcpError) as error:
        message = f"what job {params.job} changed is no longer kept here"
        raise LcpError(ErrorCode.NOT_FOUND, message, advice=_AGAIN) from error
    with source:
        if sha256(listed) != params.digest:
            message = f"what is kept of job {params.job} is not what it changed"
            raise LcpError(ErrorCode.CONFLICT, message, advice=_AGAIN)
        changed = [Changed(*one) for one in _LISTED.validate_json(listed)]
        yield _Held(place, source, changed, params.digest)


def _params(params: Params) -> ApplyParams:
    try:
        return ApplyParams.model_validate(dict(params))
    except ValidationError as error:
        message = "the params of what a command changed are not those that the engine made"
        raise LcpError(ErrorCode.INVALID_PARAMS, message, advice=_AGAIN) from error


@dataclass(frozen=True)
class _File:
    """A change, and the file of the root that it meets; `state` is its hash and mode, or why it cannot be read."""

    changed: Changed
    now: Snapshot | None
    state: str | None

    @property
    def is_done(self) -> bool:
        """True if the root has it already."""
        return self._is_known and self.changed.is_what_becomes(self.now)

    @property
    def is_conflict(self) -> bool:
        """True if the file is neither as the command found it nor as it left it."""
        return not self.is_done and not (self._is_known and self.changed.is_what_was(self.now))

    @property
    def _is_known(self) -> bool:
        """False if something is there that cannot be read."""
        return self.now is not None or self.state is None


@dataclass(frozen=True)
class _Compared:
    """All changes with the files that they meet."""

    root: Root
    files: Sequence[_File]
    digest: str

    @property
    def conflicts(self) -> list[str]:
        """The paths of files that have changed since the command began."""
        return [one.changed.path for one in self.files if one.is_conflict]

    @property
    def conflict(self) -> Failed | None:
        """Reason why nothing can be applied."""
        paths = self.conflicts
        if not paths:
            return None
        message = f"changed since the command began: {in_words(paths)}"
        return Failed(ErrorCode.CONFLICT, message, {"files": [*paths]}, _AGAIN)


def _compared(held: _Held, root: Root, access: FileAccess, cap: int) -> _Compared:
    files = [_read(one, root, access, cap) for one in held.changed]
    states: list[JsonValue] = [one.state for one in files]
    return _Compared(root, files, sha256(json.dumps([held.digest, *states]).encode()))


def _read(changed: Changed, root: Root, access: FileAccess, cap: int) -> _File:
    try:
        now = access.read_unlocked(root, changed.path, cap)
    except LcpError as error:
        if error.code is ErrorCode.PATH_NOT_FOUND:
            return _File(changed, None, None)
        return _File(changed, None, str(error.code))
    return _File(changed, now, None if now is None else f"{now.sha256} {now.mode:o}")


def _diff(one: _File, held: _Held, access: FileAccess, instance: Instance) -> Diff:
    changed = one.changed
    after = _left(changed, held, access, instance.caps.write_bytes)
    diff = Diff(changed.path, note=_NOTHING) if one.is_done else difference(changed.path, one.now, after)[0]
    modes = changed.mode_before, changed.mode_after
    is_directory = changed.path.endswith("/")
    is_kept = one.now is None or one.now.size <= instance.caps.preimage_bytes
    notes = (
        diff.note,
        f"mode {modes[0]:04o} becomes {modes[1]:04o}" if None not in modes and modes[0] != modes[1] else None,
        new_mode_in_words(changed.mode_after) if changed.before is None and not is_directory else None,
        "CONFLICT: changed since the command began" if one.is_conflict else None,
        None if is_kept else "it is too large to be kept, so that this cannot be undone",
    )
    return replace(diff, note="; ".join(filter(None, notes)) or None)


def _left(changed: Changed, held: _Held, access: FileAccess, cap: int) -> Snapshot | None:
    """The file as the command left it; None if it removed it."""
    with suppress(LcpError):
        return None if changed.after is None else access.read_unlocked(held.source, changed.path, cap)
    return None


# -- apply it


def _execute(leased: LeasedJob, judge: Judge) -> Succeeded | Hold:
    instance, job, threads = leased.instance, leased.row, leased.threads
    carried = finish(instance.database, job, threads) if job.approved else None
    if carried is not None:
        return _outcome(carried)
    with _opened(instance, _params(from_json(job.params))) as held, leased.open_root() as root:
        with threads.access(root) as access:
            found = _compared(held, root, access, 0)
        if not job.approved:
            return Hold(because(ReasonCode.APPLY, job=job.parent_id, files=f"{len(held.changed):,} files"))
        if has_drifted(instance.database, job, root, PATH, found.digest):
            files = found.conflicts
            return Hold(
                because(ReasonCode.APPLY_CONFLICT, files=in_words(files)) if files else ReasonCode.DRIFT
            )
        denied = [one.path for one in held.changed if _is_denied(one, judge)]
        if denied:
            return Hold(because(ReasonCode.APPLY_REFUSED, fact=f"a rule denies {in_words(denied)}"))
        apply = Apply(
            instance.database,
            job,
            threads,
            root,
            held.source,
            held.place / "kept",
            instance.caps.preimage_bytes,
        )
        return _outcome(apply.perform(held.changed))


def _is_denied(changed: Changed, judge: Judge) -> bool:
    return judge(changed.path, changed.after is None).verdict is Verdict.DENY


def _outcome(carried: Carried) -> Succeeded | Hold:
    held = _REASONS.rest_of(carried)
    if held is not None:
        return held
    files = [
        AppliedFile(path=one.path, change=what(one.sha256_before, one.sha256_after))
        for one in sorted(carried.changes, key=lambda one: one.path)
    ]
    said = counted([one.change for one in files]) or ["nothing to apply"]
    result = ApplyResult(summary=", ".join(said), files=files)
    return Succeeded(to_json(result.model_dump(mode="json")), carried.written_bytes)


CARRIED_OUT = OwnKind(execute=execute_apply, view=view_held, path=PATH, compared=held_contents)
