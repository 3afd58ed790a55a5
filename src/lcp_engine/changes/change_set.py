"""Change several files as one: decided by one commit, carried out exactly once, taken back as one (R20, R31).

Under the locks of all files what they have is compared with what it was, the contents that are replaced are kept, and
one transaction records all intents. Its commit decides the set: from then on its job carries it out, and so does
whoever finds one of its intents open (`recovery`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from posixpath import normpath
from typing import NamedTuple

from pydantic import JsonValue

from lcp_engine.changes.recovery import (
    APPLIED,
    CONFLICT,
    INTENT,
    MOST_HELD,
    VOID,
    carry_out,
    close_all,
    close_intents,
    content_of,
    is_of_mode_only,
    mode_of,
    open_root,
    opened,
)
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.engine.people.approvals import drift_of, note_drift
from lcp_engine.errors import GENERAL, DatabaseFailed, ErrorCode, Failed, LcpError
from lcp_engine.sandbox.atomic_write import Current, Digest, LockedFile, temporary_name
from lcp_engine.sandbox.file_access import ConfinedThreads, FileAccess, Shortage
from lcp_engine.sandbox.locks import Held, Wait
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import Elsewhere
from lcp_engine.store.changes import changes_of, intend, keep, missing_blobs, name_unkept, open_intents
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queries.file_changes import what
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.workers.base import Hold

_MOST_NAMED = 5
"""Files that a reason names."""


@dataclass(frozen=True)
class Target:
    """A file of a change set: the hashes of what it was and of what it becomes, None where there is no file.

    `place` is the identity of its `root`. `size_bytes` are those of what it becomes. `mode` are the bits of a file that
    comes, or goes. `made` are the directories that come with it, or go with it if empty. `facts` are further results.
    """

    root: str
    place: str | None
    path: str
    before: str | None
    after: str | None
    size_bytes: int = 0
    mode: int | None = None
    made: tuple[str, ...] = ()
    undoes: int | None = None
    in_stage: bool = False
    facts: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return normpath(f"{self.root}/{self.path}")

    @property
    def json(self) -> dict[str, JsonValue]:
        return {"path": self.path, "change": what(self.before, self.after)}

    def intend(self, tx: Tx, mission_id: int, job_id: int, attempt: int, mode: str) -> None:
        """Record the intent of a job to change the file so."""
        bits: dict[str, JsonValue] = {} if self.mode is None else {"mode": self.mode}
        change = ChangeRow(
            id=0,
            mission_id=mission_id,
            job_id=job_id,
            attempt=attempt,
            root=self.root,
            path=self.path,
            file=self.file,
            mode=mode,
            state=INTENT,
            sha256_before=self.before,
            sha256_after=self.after,
            size_bytes=self.size_bytes,
            temporary=temporary_name(),
            made=to_json([*self.made]),
            result=to_json({**bits, **self.facts}),
            undoes=self.undoes,
            root_identity=self.place,
            staged=1 if self.in_stage else None,
        )
        intend(tx, change)


# -- decide


def close_others(database: Database, files: Sequence[tuple[str, str | None]], found: Sequence[Held]) -> bool:
    """Close the intents that killed processes left open on locked files, each given with its place.

    True if there were any: what was compared before is to be compared again.
    """
    left = database.read(lambda tx: [open_intents(tx, file, place) for file, place in files])
    is_closed = False
    for changes, held in zip(left, found, strict=True):
        if changes and isinstance(held, LockedFile):
            close_intents(database, changes, held)
            is_closed = True
    return is_closed


def digest_of(held: Held) -> Digest | None:
    """The digest of a locked file; None if there is none. Raises the refusal of its path."""
    if isinstance(held, LockedFile):
        return held.digest()
    if held is None or held.code is ErrorCode.PATH_NOT_FOUND:
        return None
    raise held


def missing_parents(root: Root, path: str) -> tuple[str, ...]:
    """The directories above a file that are not there, outermost first: an undo removes them.

    Raises OSError if something else is there.
    """
    missing: list[str] = []
    for at in (at for at, letter in enumerate(path.removesuffix("/")) if letter == "/"):
        try:
            os.close(root.open_directory(path[:at]))
        except FileNotFoundError:
            missing.append(path[:at])
    return tuple(missing)


class Content(NamedTuple):
    """A content of a file to keep; `data` is None for one that is too large, and is named only."""

    sha256: str
    size: int
    data: bytes | None
    file: str | None = None


def replaced(file: LockedFile, sha: str, keeps: int) -> Content:
    """The content of hash `sha` that is about to be replaced; without its bytes if it has more than `keeps`.

    Raises `CONFLICT` if a program that takes no locks has changed it by now.
    """
    file.check_removable()
    found = file.read_within(keeps)
    there = file.digest() if isinstance(found, int) else found
    if there is None or there.sha256 != sha:
        raise _just_changed(file.path)
    return (
        Content(sha, len(found.data), found.data)
        if isinstance(found, Current)
        else Content(sha, found or 0, None)
    )


def made(access: FileAccess, source: Root, path: str, sha: str) -> Content:
    """The content of hash `sha` that was made in `source`. Raises `CONFLICT` if it is another one by now."""
    found = access.read_unlocked(source, path, None)
    if found is None or found.data is None or found.sha256 != sha:
        raise _just_changed(path)
    return Content(sha, found.size, found.data)


def _just_changed(path: str) -> LcpError:
    message = f"{path!r} has just been changed by another program"
    return LcpError(ErrorCode.CONFLICT, message, {"files": [path]}, GENERAL)


def keep_contents(database: Database, contents: Iterable[Content]) -> list[str]:
    """Keep contents, some a transaction, so that they never fill the memory; their hashes."""
    some, size, hashes = list[Content](), 0, list[str]()
    for one in contents:
        hashes.append(one.sha256)
        some.append(one)
        size += len(one.data or b"")
        if size > MOST_HELD:
            database.write(partial(_keep, some=some))
            some, size = [], 0
    if some:
        database.write(partial(_keep, some=some))
    return hashes


def _keep(tx: Tx, some: Sequence[Content]) -> None:
    """Keep contents, in the order of their hashes, so that two that keep the same ones never deadlock."""
    for sha, size, data, file in sorted(some, key=lambda one: one.sha256):
        if data is None:
            name_unkept(tx, sha, size)
        else:
            keep(tx, sha, data, file)


def decide(
    database: Database,
    job: JobRow,
    targets: Sequence[Target],
    mode: str,
    contents: Callable[[], Iterable[Content]],
) -> None:
    """Keep contents, and record the intents of a job if it is still leased: the commit decides the set."""

    def record(tx: Tx, hashes: Sequence[str]) -> bool:
        ledger = ledger_of(tx)
        ledger.lock([job.mission_id])
        # A prune may have removed a content, which nothing refers to yet.
        if missing_blobs(tx, hashes, keeps=True):
            return False
        if ledger.is_leased(job):
            for one in targets:
                one.intend(tx, job.mission_id, job.id, job.attempt, mode)
        return True

    while not database.write(partial(record, hashes=keep_contents(database, contents()))):
        pass


# -- carry it out


@dataclass(frozen=True)
class Carried:
    """The changes of a set as they are in the end, and by id why some were not made.

    `refused` is why none was begun.
    """

    changes: Sequence[ChangeRow]
    errors: Mapping[int, Failed]
    refused: Failed | None = None

    @property
    def unmade(self) -> list[ChangeRow]:
        return [one for one in self.changes if one.state != APPLIED]

    @property
    def written_bytes(self) -> int | None:
        """Bytes of the files that were written; None if nothing was changed."""
        made = [one for one in self.changes if one.state == APPLIED]
        return sum(one.size_bytes for one in made if one.sha256_after is not None) if made else None


def decided(tx: Tx, job: JobRow) -> list[ChangeRow]:
    """The changes that a job decided at last since it was approved, in their order; empty if all of them are void."""
    made = [one for one in changes_of(tx, job.id) if one.attempt >= job.approved]
    last = {one.file: one for one in reversed(made) if one.attempt == made[0].attempt}
    return [] if all(one.state == VOID for one in last.values()) else [*last.values()]


def carry_out_all(
    database: Database, job: JobRow, intents: Sequence[ChangeRow], threads: ConfinedThreads, action: str
) -> Carried:
    """Bring all files to what was decided.

    First all new contents are written beside their files: a disk that has no room for them changes none. Raises errors
    that another attempt may not meet; the last attempt leaves the file as it is. Raises `Elsewhere` for files of
    another machine, which are left to the runners there.
    """
    is_last = job.failures + 1 >= job.max_attempts
    if all(one.state == INTENT for one in intents):
        refused = _write_beside(database, job, intents, threads, action)
        if refused is not None:
            # Not left open for another attempt: whoever finds an intent carries it out, a file at a time.
            close_all(database, intents, {one.id: VOID for one in intents})
            if refused.failed.meaning.retry and not is_last:
                raise refused
            return Carried(_again(database, job.id, intents), {}, refused.failed)
    carrying = _Carrying(database, is_last)
    for _, of_root in groupby((one for one in intents if one.state == INTENT), _root_of):
        left = [*of_root]
        try:
            with opened(database, left[0], threads) as (root, files):
                while left:
                    left = carrying.carry_out_some(left, root, files)
        except (DatabaseFailed, Elsewhere, Shortage):
            raise
        except LcpError as error:
            close_all(database, left, {one.id: carrying.state_after(one, error) for one in left})
    return Carried(_again(database, job.id, intents), carrying.errors)


def _again(database: Database, job_id: int, intents: Sequence[ChangeRow]) -> list[ChangeRow]:
    """The changes of a job as they are by now."""
    now = {one.id: one for one in database.read(lambda tx: changes_of(tx, job_id))}
    return [now[one.id] for one in intents]


def _root_of(change: ChangeRow) -> tuple[int, str, str | None]:
    return change.mission_id, change.root, change.root_identity


@dataclass
class _Carrying:
    """Carries out the intents of one set in order, and notes by id why some could not be."""

    database: Database
    is_last: bool
    errors: dict[int, Failed] = field(default_factory=dict)

    def carry_out_some(self, left: Sequence[ChangeRow], root: Root, files: FileAccess) -> list[ChangeRow]:
        """Carry out the first ones, as far as locks are free and contents fit into memory; returns the others."""
        some = _first_of(left)
        states: dict[int, str] = {}
        done = 0
        with files.lock([(root, one.path) for one in some], Wait.FIRST) as locked:
            # Others may have carried some out before the lock was granted.
            is_open = {one.id for one in _again(self.database, some[0].job_id, some) if one.state == INTENT}
            try:
                for change, held in zip(some, locked.found, strict=True):
                    if held is None:  # those behind it wait as well: what is moved is always in one place
                        break
                    done += 1
                    if change.id not in is_open:
                        continue
                    try:
                        if isinstance(held, LcpError):
                            raise held
                        states[change.id] = carry_out(self.database, change, held)
                    except LcpError as error:
                        states[change.id] = self.state_after(change, error)
            finally:
                close_all(self.database, [one for one in some if one.id in states], states)
        return [*left[done:]]

    def state_after(self, change: ChangeRow, error: LcpError) -> str:
        """The state of a change that could not be made. Raises the error if another attempt may not meet it."""
        if isinstance(error, DatabaseFailed) or (error.failed.meaning.retry and not self.is_last):
            raise error
        self.errors[change.id] = error.failed
        return CONFLICT if error.code is ErrorCode.CONFLICT else VOID


def remove_empty_directories(
    database: Database, changes: Sequence[ChangeRow], threads: ConfinedThreads
) -> None:
    """Remove what was created for files that are gone again."""
    gone = [one for one in changes if one.state == APPLIED and one.sha256_after is None]
    for of_root, made in _by_root(gone).items():
        with (
            suppress(LcpError),
            open_root(database, *of_root) as root,
            threads.access(root, writes=True) as files,
        ):
            files.remove_empty(root, {str(one) for change in made for one in json.loads(change.made)})


def _by_root(changes: Iterable[ChangeRow]) -> dict[tuple[int, str, str | None], list[ChangeRow]]:
    found: dict[tuple[int, str, str | None], list[ChangeRow]] = {}
    for change in changes:
        found.setdefault(_root_of(change), []).append(change)
    return found


# -- hold its job where it cannot be carried out


class Reasons(NamedTuple):
    """Reasons that hold the job of a set: some `files` are in conflict, or it is refused for a `fact`."""

    conflict: ReasonCode
    refused: ReasonCode

    def refusal_of(self, job: JobRow, error: LcpError) -> Hold:
        """Hold for an error that kept a set from being decided. Raises it if another attempt may not meet it."""
        if isinstance(error, DatabaseFailed | Shortage):
            raise error
        is_last = job.failures + 1 >= job.max_attempts
        if error.failed.meaning.retry and not is_last:
            raise error
        files = error.failed.details.get("files")
        if error.code is ErrorCode.CONFLICT and isinstance(files, list):
            return Hold(because(self.conflict, files=in_words([*map(str, files)])))
        return Hold(because(self.refused, fact=error.failed.message))

    def rest_of(self, carried: Carried) -> Hold | None:
        """Hold for the changes that were not made; None if all were."""
        left = in_words([one.path for one in carried.unmade])
        errors = [one.message for one in carried.errors.values() if one.code is not ErrorCode.CONFLICT]
        facts = errors[-1:] if carried.refused is None else [carried.refused.message]
        if facts:
            return Hold(because(self.refused, fact=f"{facts[0]} (left as they were: {left})"))
        return Hold(because(self.conflict, files=left)) if left else None


def has_drifted(database: Database, job: JobRow, root: Root, name: str, digest: str) -> bool:
    """True if the approval of a job is bound to another digest of what it has by `name`; the difference is recorded."""
    file = normpath(f"{root.path}/{name}")
    drifted = database.read(lambda tx: drift_of(tx, job, file, name, digest))
    if drifted is not None:
        database.write(lambda tx: note_drift(ledger_of(tx), job, drifted))
    return drifted is not None


def in_words(paths: Sequence[str]) -> str:
    """The first paths, and how many more there are."""
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(shortened(one_line(path), 80) for path in paths[:_MOST_NAMED]) + more


def counted(changes: Sequence[str]) -> list[str]:
    """Numbers of files that were created, changed and removed."""
    words = ("created", "changed", "removed")
    return [f"{changes.count(word)} {word}" for word in words if word in changes]


# -- first all contents are written beside their files


def _write_beside(
    database: Database, job: JobRow, intents: Sequence[ChangeRow], threads: ConfinedThreads, action: str
) -> LcpError | None:
    """Write the contents of a set beside their files. Why a disk refused one, if no file has been changed yet."""
    written: list[tuple[_Beside, Sequence[ChangeRow]]] = []
    with ExitStack() as stack:
        for of_root, changes in _by_root(intents).items():
            try:
                root = stack.enter_context(open_root(database, *of_root))
                access = stack.enter_context(threads.access(root, writes=True))
            except (DatabaseFailed, Shortage):
                raise
            except LcpError:
                continue  # it is met again, and named, when the files are changed
            beside = _Beside(database, root, access)
            written.append((beside, changes))
            size = sum(one.size_bytes for one in changes if one.sha256_after is not None)
            # An earlier attempt that was killed may have taken the room already.
            is_first = all(one.attempt == job.attempt for one in changes)
            refused = (no_room(root, size, action) if is_first else None) or beside.prepare(changes)
            if refused is not None and not any(one.has_begun for one, _ in written):
                for one, some in written:
                    one.remove(some)
                return refused
    return None


_REPEATED = "undo", "command"
"""Actions that no person approves."""


def no_room(root: Root, size: int, action: str) -> LcpError | None:
    """Error of a disk that has certainly no room for so many bytes beside what is there."""
    disk = os.fstatvfs(root.descriptor)
    free = disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)
    if not disk.f_blocks or size <= free:
        return None
    message = f"the disk of {root.path!r} has {free:,} bytes free, and the {action} needs {size:,}"
    advice = f"Free space on that disk, then {'repeat' if action in _REPEATED else 'approve'} the {action}."
    return LcpError(ErrorCode.FILE_SYSTEM, message, advice=advice)


@dataclass
class _Beside:
    """New contents of open intents, written beside the files that they are for.

    `has_begun` once one of the files is found changed already.
    """

    database: Database
    root: Root
    access: FileAccess
    has_begun: bool = False
    _made: set[str] = field(default_factory=set)

    def prepare(self, left: Sequence[ChangeRow]) -> LcpError | None:
        """Write them all. Why the disk refused one, if no file has been changed yet: then none is left there."""
        pending = [one for one in left if one.sha256_after is not None]
        while pending:
            some = _first_of(pending)
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
        if is_of_mode_only(change):
            return False
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
            data = content_of(self.database, change)
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
        made = {str(one) for change in left if change.undoes is None for one in json.loads(change.made)}
        self.access.remove_empty(self.root, made | self._made)


_REFUSED = frozenset({ErrorCode.FILE_SYSTEM, ErrorCode.PATH_DENIED})


def _first_of(changes: Sequence[ChangeRow]) -> list[ChangeRow]:
    """The first ones, whose contents fit into memory."""
    some, size = list[ChangeRow](), 0
    for change in changes:
        if some and size + change.size_bytes > MOST_HELD:
            break
        some.append(change)
        size += change.size_bytes
    return some
