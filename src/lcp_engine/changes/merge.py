"""Show and carry out the merge of a stage: three-way, all that was approved or nothing, exactly once (R20, R28).

What there is to merge follows from the journal: each file from before the mission's first change in its stage to after
its last. In the root a file is as it was (it is changed), is as the stage has it (nothing is left to do), or is
something else, a conflict, which holds the merge. Under the locks of all files one transaction records all intents.
From its commit on the merge is decided, and whoever finds an open intent carries it out, with the content of the stage.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os.path import normpath

from pydantic import JsonValue

from lcp_engine.changes.recovery import (
    APPLIED,
    CONFLICT,
    INTENT,
    MERGE_MODE,
    VOID,
    Contents,
    carry_out,
    close_all,
    staged_content,
)
from lcp_engine.changes.unified_diff import Diff, diff_bytes, replacing
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.policy import PathPolicy, Verdict
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.engine.approvals import Drifted, drift_of, note_drift
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import DatabaseFailed, ErrorCode, Failed, LcpError
from lcp_engine.sandbox.atomic_write import LockedFile, Snapshot, temporary_name
from lcp_engine.sandbox.file_access import ConfinedThreads, FileAccess, Patience, confined_threads, lock_all
from lcp_engine.sandbox.locks import Held, Wait
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import KnownRoot, open_known, place_of
from lcp_engine.store.changes import changes_in_stage, changes_of, intend, keep, sha256
from lcp_engine.store.db.json_text import fingerprint, from_json, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.people import Sight, see
from lcp_engine.store.queries.archive import missing_blobs
from lcp_engine.store.queries.file_changes import what
from lcp_engine.store.queries.held_jobs import NO_PERSON
from lcp_engine.store.queries.mission_spec import changed_root, spec_and_root
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.store.stages import purposes, stage_of
from lcp_engine.workers.base import Hold
from lcp_engine.workers.merge import MERGE, MergedFile, MergeParams, MergeResult

PATH = "what it merges"
"""What an approval of a merge names as its file."""
MOST_HELD = 32 * 1024 * 1024
"""Bytes of contents in memory at a time."""
MOST_NAMED = 5
"""Files that a reason names."""
WAIT_SECONDS = 30.0
"""How long a merge waits for writes to its files that are under way."""
_HEAD = ("--- the root", "+++ the root with what the stage has")
"""A diff begins with two lines of names."""
_MOST_WORDS = 160


@dataclass(frozen=True)
class StagedFile:
    """A file that the mission changed in its stage: its hash before and after, None where there is no file."""

    path: str
    base: str | None
    staged: str | None
    jobs: tuple[int, ...]


@dataclass(frozen=True)
class Compared:
    """A staged file, and what it is in the root: its hash, None if there is no file, or the code of an error.

    `fault` is why it cannot be merged, in words.
    """

    file: StagedFile
    now: str | None
    fault: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether the root has what the stage has."""
        return self.now == self.file.staged and self.fault is None


@dataclass(frozen=True)
class MergeView:
    """What a merge would do now: a diff for each file, and what an approval of it is bound to."""

    diffs: tuple[Diff, ...]
    digest: str

    @cached_property
    def joined(self) -> Diff:
        """All of it as one diff; each file begins with a line of its own, which no line of a file begins like."""
        lines = [*_HEAD]
        for number, diff in enumerate(self.diffs, 1):
            said = f": {one_line(diff.note)}" if diff.note else ""
            lines += [f"# {number}/{len(self.diffs)} {one_line(diff.path)}{said}", *diff.lines]
        return Diff(
            PATH,
            tuple(lines) if self.diffs else (),
            None if self.diffs else "the stage has nothing that the root has not",
            sum(diff.added for diff in self.diffs),
            sum(diff.removed for diff in self.diffs),
            all(diff.is_whole for diff in self.diffs),
        )


# -- look


def view_merge(instance: Instance, mission_id: int, params: MergeParams) -> MergeView:
    """What the merge of a mission would do now. Raises `LcpError` if the root or the stage cannot be opened."""
    database = instance.database
    known = database.read(lambda tx: changed_root(tx, mission_id))
    assert known is not None
    threads = confined_threads(instance.isolation)
    with _opened(instance, mission_id, lambda: open_known(known)) as (root, stage):
        files = _staged_files(instance, mission_id, stage)
        with threads.access(root, stage) as access:
            judge = _judge(instance, mission_id, root)
            compared = [_compared(one, root, stage, access, judge) for one in files]
            found = _Found(root, stage, access, instance.caps.write_bytes)
            said_of = database.read(lambda tx: purposes(tx, mission_id))
            diffs = tuple(_diff(found, one, params, said_of) for one in compared)
    return MergeView(diffs, digest_of(compared))


def digest_of(compared: Sequence[Compared]) -> str:
    """The hash of what there is to merge and of what it meets, whatever part of it a person takes."""
    facts = [[one.file.path, one.file.base, one.file.staged, one.now, one.fault] for one in compared]
    return sha256(json.dumps(facts).encode())


@dataclass(frozen=True)
class _Found:
    """Reads the files of a root and of its stage, up to `cap` bytes."""

    root: Root
    stage: Root
    access: FileAccess
    cap: int

    def both(self, path: str) -> tuple[Snapshot | None, Snapshot | None]:
        """What the root and the stage have at a path; None where there is no file that can be read."""
        return self._read(self.root, path), self._read(self.stage, path)

    def _read(self, root: Root, path: str) -> Snapshot | None:
        try:
            return self.access.read_unlocked(root, path, self.cap)
        except LcpError:
            return None


def _diff(found: _Found, one: Compared, params: MergeParams, said_of: Mapping[int, str]) -> Diff:
    """What the merge does to a file, and what for."""
    diff = _difference_of(found, one)
    said = "; ".join(filter(None, (said_of.get(job) for job in one.file.jobs)))
    notes = (
        diff.note,
        None if params.takes(one.file.path) else "left out",
        None if one.fault is None else f"CONFLICT: {one.fault}",
        f"for {shortened(said, _MOST_WORDS)}" if said else None,
    )
    return replace(diff, note="; ".join(filter(None, notes)) or None)


def _difference_of(found: _Found, one: Compared) -> Diff:
    path = one.file.path
    if one.is_done:
        return Diff(path, note="the root has it already")
    before, after = found.both(path)
    if path.endswith("/"):
        return diff_bytes(path, None if before is None else b"", None if after is None else b"")
    if before is not None and before.data is None:
        return replacing(path, before.size, None if after is None else after.data)
    if after is not None and after.data is None:
        note = f"too large to be shown: {after.size:,} bytes, SHA-256 {after.sha256}"
        return Diff(path, note=note, is_whole=False)
    return diff_bytes(path, None if before is None else before.data, None if after is None else after.data)


# -- find and compare


def _staged_files(instance: Instance, mission_id: int, stage: Root) -> list[StagedFile]:
    """What the mission changed in its stage, in the order of the first changes, unless it took that back itself."""
    made = instance.database.read(lambda tx: changes_in_stage(tx, mission_id, stage.path))
    by_path: dict[str, list[ChangeRow]] = {}
    for change in made:
        by_path.setdefault(change.path, []).append(change)
    files = [
        StagedFile(
            path,
            of_path[0].sha256_before,
            of_path[-1].sha256_after,
            tuple(dict.fromkeys(change.job_id for change in of_path)),
        )
        for path, of_path in by_path.items()
    ]
    return [one for one in files if one.base != one.staged]


def _compared(one: StagedFile, root: Root, stage: Root, access: FileAccess, judge: PathPolicy) -> Compared:
    return _judged(one, _state(access, root, one.path), _state(access, stage, one.path), judge)


def _state(access: FileAccess, root: Root, path: str) -> str | None:
    """The hash of a file, None if there is none, or the code of the error why it cannot be read."""
    try:
        found = access.read_unlocked(root, path, 0)
    except LcpError as error:
        return _absent(root, path) if error.code is ErrorCode.PATH_NOT_FOUND else error.code.value
    return _absent(root, path) if found is None else found.sha256


def _absent(root: Root, path: str) -> str | None:
    """None for a file that is not there; the code of an error if something else than a directory is above it."""
    try:
        _missing_parents(root, path)
    except OSError:
        return ErrorCode.NOT_A_FILE.value
    return None


def _judged(one: StagedFile, now: str | None, there: str | None, judge: PathPolicy) -> Compared:
    fault = None
    ruling = judge(one.path)
    if there != one.staged:
        fault = "something else than the mission's jobs has changed it in the stage"
    elif now not in (one.base, one.staged):
        fault = _difference(one, now)
    elif ruling.verdict is Verdict.DENY:
        fault = f"it is denied: {ruling.reason}"
    return Compared(one, now, fault)


def _difference(one: StagedFile, now: str | None) -> str:
    if now in set(ErrorCode):
        return f"it is no file in the root that can be written ({now})"
    if now is None:
        return "it is gone from the root since the stage was made"
    return f"it {'was created' if one.base is None else 'has changed'} in the root since the stage was made"


def _judge(instance: Instance, mission_id: int, root: Root) -> PathPolicy:
    """What policy says now about writing a file of the root."""
    spec_text, _ = instance.database.read(lambda tx: spec_and_root(tx, mission_id))
    policy = instance.admission.policy(spec_of(spec_text), root.path)
    return policy.for_kind(MERGE.named, has_effects=True, writes=True)


@contextmanager
def _opened(
    instance: Instance, mission_id: int, open_root: Callable[[], Root]
) -> Iterator[tuple[Root, Root]]:
    """The root of a mission and its stage."""
    known = known_stage(instance, mission_id)
    with open_root() as root, open_known(known) as stage:
        yield root, stage


def known_stage(instance: Instance, mission_id: int) -> KnownRoot:
    """The stage of a mission as it is stored. Raises `NOT_FOUND` if it has none (any more)."""
    found = instance.database.read(lambda tx: stage_of(tx, mission_id))
    if found is None:
        message = f"mission {mission_id} has no stage: none was made yet, or its merge was decided"
        raise LcpError(ErrorCode.NOT_FOUND, message)
    return found.known


# -- carry out


def execute_merge(
    instance: Instance, job: JobRow, threads: ConfinedThreads, open_root: Callable[[], Root]
) -> Succeeded | Failed | Hold:
    """Hold a merge that no person approved, if there is anything to merge; carry an approved one out.

    Raises errors that another attempt may not meet; the last attempt holds the merge.
    """
    try:
        return _Merge(instance, job, threads, open_root).execute()
    except DatabaseFailed:
        raise
    except LcpError as error:
        is_last = job.failures + 1 >= job.max_attempts
        if error.failed.meaning.retry and not is_last:
            raise
        return Hold(because(ReasonCode.MERGE_REFUSED, fact=error.failed.message))


class _Merge:
    """One attempt of the job of a merge."""

    def __init__(
        self, instance: Instance, job: JobRow, threads: ConfinedThreads, open_root: Callable[[], Root]
    ) -> None:
        self._instance, self._database, self._job = instance, instance.database, job
        self._threads, self._open_root = threads, open_root
        self._params = MergeParams.model_validate(from_json(job.params))

    def execute(self) -> Succeeded | Hold:
        if self._database.read(lambda tx: stage_of(tx, self._job.mission_id)) is None:
            return self._succeeded([], [])  # no job has begun in it
        with _opened(self._instance, self._job.mission_id, self._open_root) as (root, stage):
            files = _staged_files(self._instance, self._job.mission_id, stage)
            if not self._intents():
                decided = self._decide(root, stage, files)
                if decided is not None:
                    return decided
            self._carry_out(root, stage)
        return self._outcome(files)

    def _intents(self) -> list[ChangeRow]:
        """What was decided since the last approval, in the order in which it is carried out."""
        made = self._database.read(lambda tx: changes_of(tx, self._job.id))
        return [one for one in reversed(made) if self._job.approved and one.attempt >= self._job.approved]

    def _decide(self, root: Root, stage: Root, files: Sequence[StagedFile]) -> Succeeded | Hold | None:
        """Compare, and record all intents. The outcome if nothing is to be carried out."""
        judge = _judge(self._instance, self._job.mission_id, root)
        with (
            self._threads.access(root, stage, writes=True) as access,
            lock_all(access, [(root, one.path) for one in files], Patience(WAIT_SECONDS)) as locked,
        ):
            if locked is None:
                message = f"files that are to be merged are still being written after {WAIT_SECONDS:g} s"
                raise LcpError(ErrorCode.WRONG_STATE, message)
            compared = [
                _judged(one, _digest(held, root, one.path), _state(access, stage, one.path), judge)
                for one, held in zip(files, locked, strict=True)
            ]
            found = dict(zip((one.path for one in files), locked, strict=True))
            if all(one.is_done for one in compared):
                return self._succeeded([], [])
            digest = digest_of(compared)
            sight = Sight(
                fingerprint(MERGE.kind, from_json(self._job.params)), PATH, digest, self._database.now()
            )
            if not self._job.approved:
                self._database.write(lambda tx: see(tx, self._job.id, NO_PERSON, sight))
                return Hold(_reason(compared))
            drifted = self._drift(root, digest)
            if drifted is not None:
                return drifted
            unknown = self._params.unknown(one.path for one in files)
            if unknown is not None:
                fact = f"{unknown!r} is no file that the mission changed in its stage"
                return Hold(because(ReasonCode.MERGE_REFUSED, fact=fact))
            taken = [one for one in compared if self._params.takes(one.file.path) and not one.is_done]
            if any(one.fault for one in taken):
                return Hold(_reason(taken))
            wanted = [_Wanted(one, found[one.file.path]) for one in _in_order(taken)]
            self._record(root, wanted, access, stage)
        return None

    def _drift(self, root: Root, digest: str) -> Hold | None:
        file = normpath(f"{root.path}/{PATH}")
        drifted: Drifted | None = self._database.read(lambda tx: drift_of(tx, self._job, file, PATH, digest))
        if drifted is None:
            return None
        self._database.write(lambda tx: note_drift(ledger_of(tx), self._job, drifted))
        return Hold(ReasonCode.DRIFT)

    def _record(self, root: Root, wanted: Sequence[_Wanted], access: FileAccess, stage: Root) -> None:
        """Keep what will be replaced, and record the intents: the commit decides the merge."""
        rows = [self._intent(root, one, access, stage) for one in wanted]
        hashes = [one.compared.now for one in wanted if one.compared.now is not None]

        def decide(tx: Tx) -> bool:
            ledger = ledger_of(tx)
            ledger.lock([self._job.mission_id])
            # A prune may have removed a content, which nothing refers to yet.
            if missing_blobs(tx, hashes, keeps=True):
                return False
            if ledger.is_leased(self._job):
                for row in rows:
                    intend(tx, row)
            return True

        self._keep(wanted)
        while not self._database.write(decide):
            self._keep(wanted)

    def _keep(self, wanted: Sequence[_Wanted]) -> None:
        """Keep the contents that are replaced, so that the merge can be undone, some in each transaction."""
        batch: list[tuple[str, bytes]] = []
        for one in wanted:
            data = one.before()
            if data is not None and one.compared.now is not None:
                batch.append((one.compared.now, data))
            if sum(len(data) for _, data in batch) > MOST_HELD:
                self._database.write(partial(_keep_all, some=batch))
                batch = []
        if batch:
            self._database.write(partial(_keep_all, some=batch))

    def _intent(self, root: Root, one: _Wanted, access: FileAccess, stage: Root) -> ChangeRow:
        file = one.compared.file
        there = None if file.staged is None else access.read_unlocked(stage, file.path, 0)
        mode = one.mode if file.staged is None else None
        if one.compared.now is None and there is not None and not file.path.endswith("/"):
            mode = there.mode
        return ChangeRow(
            id=0,
            mission_id=self._job.mission_id,
            job_id=self._job.id,
            attempt=self._job.attempt,
            root=root.path,
            path=file.path,
            file=normpath(f"{root.path}/{file.path}"),
            mode=MERGE_MODE,
            state=INTENT,
            sha256_before=one.compared.now,
            sha256_after=file.staged,
            size_bytes=0 if there is None else there.size,
            temporary=temporary_name(),
            made=to_json(_missing_parents(root, file.path)),
            result=to_json({} if mode is None else {"mode": mode}),
            undoes=None,
            root_identity=place_of(root),
        )

    def _carry_out(self, root: Root, stage: Root) -> None:
        """Bring the files of all open intents to what the stage has, some at a time."""
        left = [one for one in self._intents() if one.state == INTENT]
        is_last = self._job.failures + 1 >= self._job.max_attempts
        with self._threads.access(root, writes=True) as access, self._threads.access(stage) as reading:
            contents = partial(staged_content, reading, stage)
            while left:
                left = self._carry_out_some(root, left, access, contents, is_last=is_last)

    def _carry_out_some(
        self, root: Root, left: Sequence[ChangeRow], access: FileAccess, contents: Contents, *, is_last: bool
    ) -> list[ChangeRow]:
        """Those whose locks are free and whose contents fit into memory; returns the others."""
        states: dict[int, str] = {}
        some, size = list[ChangeRow](), 0
        for change in left:
            if some and size + change.size_bytes > MOST_HELD:
                break
            some.append(change)
            size += change.size_bytes
        later: list[ChangeRow] = []
        errors: list[LcpError] = []
        with access.lock([(root, change.path) for change in some], Wait.FIRST) as locked:
            for change, held in zip(some, locked.found, strict=True):
                if held is None:
                    later.append(change)
                    continue
                try:
                    if isinstance(held, LcpError):
                        raise held
                    states[change.id] = carry_out(change, held, contents)
                except LcpError as error:
                    if error.failed.meaning.retry and not is_last:
                        errors.append(error)
                    else:
                        states[change.id] = CONFLICT if error.code is ErrorCode.CONFLICT else VOID
            close_all(self._database, [one for one in some if one.id in states], states)
        if errors:
            raise errors[0]
        return [*later, *left[len(some) :]]

    def _outcome(self, files: Sequence[StagedFile]) -> Succeeded | Hold:
        made = self._intents()
        left = [one.path for one in made if one.state != APPLIED]
        if left:
            return Hold(because(ReasonCode.MERGE_CONFLICT, files=_named(left)))
        jobs = {one.path: one.jobs for one in files}
        merged = [
            MergedFile(
                path=one.path,
                change=what(one.sha256_before, one.sha256_after),
                jobs=[*jobs.get(one.path, ())],
            )
            for one in sorted(made, key=lambda one: one.path)
        ]
        return self._succeeded(merged, [one.path for one in files if not self._params.takes(one.path)])

    @staticmethod
    def _succeeded(merged: Sequence[MergedFile], left_out: Sequence[str]) -> Succeeded:
        counts = {
            word: sum(one.change == word for one in merged) for word in ("created", "changed", "removed")
        }
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        result = MergeResult(summary=said or "nothing to merge", files=[*merged], left_out=[*left_out])
        return Succeeded(to_json(result.model_dump(mode="json")), 0 if merged else None)


@dataclass(frozen=True)
class _Wanted:
    """A file that is to be merged, locked, or the reason why its directory is not there."""

    compared: Compared
    held: Held

    @property
    def mode(self) -> int | None:
        digest = self.held.digest() if isinstance(self.held, LockedFile) else None
        return None if digest is None else digest.mode

    def before(self) -> bytes | None:
        """What is replaced. Raises `CONFLICT` if a program that takes no locks has changed it by now."""
        if not isinstance(self.held, LockedFile) or self.compared.now is None:
            return None
        self.held.check_removable()
        found = self.held.read(None)
        if found is None or found.sha256 != self.compared.now:
            message = f"{self.compared.file.path!r} has just been changed by another program"
            raise LcpError(ErrorCode.CONFLICT, message)
        return found.data


def _keep_all(tx: Tx, some: Sequence[tuple[str, bytes]]) -> None:
    """Keep contents, in the order of their hashes, so that two that keep the same ones never deadlock."""
    for sha, data in sorted(some):
        keep(tx, sha, data)


def _in_order(taken: Sequence[Compared]) -> list[Compared]:
    """What is created and changed in the mission's order, then what is removed: what was moved is never lost."""
    return sorted(taken, key=lambda one: one.file.staged is None)


def _digest(held: Held, root: Root, path: str) -> str | None:
    """Like `_state`, of a file whose directory is locked, or is not there."""
    try:
        found = held.digest() if isinstance(held, LockedFile) else None
    except LcpError as error:
        return error.code.value
    if isinstance(held, LcpError) and held.code is not ErrorCode.PATH_NOT_FOUND:
        return held.code.value
    return _absent(root, path) if found is None else found.sha256


def _reason(compared: Sequence[Compared]) -> Reason:
    conflicts = [one.file.path for one in compared if one.fault]
    if conflicts:
        return because(ReasonCode.MERGE_CONFLICT, files=_named(conflicts))
    count = sum(not one.is_done for one in compared)
    return because(ReasonCode.MERGE, count=count, files=f"{count:,} file{'' if count == 1 else 's'}")


def _named(paths: Sequence[str]) -> JsonValue:
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(shortened(one_line(path), 80) for path in paths[:MOST_NAMED]) + more


def _missing_parents(root: Root, path: str) -> list[JsonValue]:
    """The directories above a file that are not there, outermost first: an undo removes them.

    Raises OSError if something else is there.
    """
    parts = path.removesuffix("/").split("/")[:-1]
    missing: list[JsonValue] = []
    for depth in range(1, len(parts) + 1):
        above = "/".join(parts[:depth])
        try:
            os.close(root.open_directory(above))
        except FileNotFoundError:
            missing.append(above)
    return missing
