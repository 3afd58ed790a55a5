"""Carry out the merge of a stage: three-way, all that was approved or nothing, exactly once (R20, R28).

A conflict of what is taken holds the merge. Under the locks of all files one transaction records all intents. From its
commit on the merge is decided, and whoever finds an open intent carries it out, with the content of the stage; of a
file that a person takes in part or has edited, with the content that was kept before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os.path import normpath

from pydantic import JsonValue

from lcp_engine.changes.change_set import (
    Carried,
    Content,
    Reasons,
    Target,
    carry_out_all,
    close_others,
    counted,
    decide,
    decided,
    digest_of,
    has_drifted,
    in_words,
    made,
    missing_parents,
    no_room,
    replaced,
)
from lcp_engine.changes.kept_files import MOST_IN_DATABASE, KeptFiles
from lcp_engine.changes.own_kinds import LeasedJob, OwnKind
from lcp_engine.changes.recovery import MERGE_MODE, MODES
from lcp_engine.core.json_values import object_in
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.features.stages.merge_contents import PART, kept_of, merged_content
from lcp_engine.features.stages.merge_parts import Part, part_of
from lcp_engine.features.stages.merge_view import (
    PATH,
    merged_contents,
    merged_text,
    unknown_file,
    view_merge,
)
from lcp_engine.features.stages.merge_worker import MERGE, MergedFile, MergeParams, MergeResult
from lcp_engine.features.stages.staged_files import (
    Compared,
    StagedFile,
    absent,
    digest_of_all,
    judge_of,
    judged,
    opened,
    staged_files_of,
    state_of_file,
    with_names_and_modes,
)
from lcp_engine.features.stages.store import stage_of
from lcp_engine.sandbox.atomic_write import LockedFile, Snapshot
from lcp_engine.sandbox.file_access import FileAccess, Patience, lock_all
from lcp_engine.sandbox.locks import Held
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import place_of
from lcp_engine.store.changes import sha256
from lcp_engine.store.db.json_text import fingerprint, from_json, to_json
from lcp_engine.store.people import Sight, see
from lcp_engine.store.queries.file_changes import what
from lcp_engine.store.queries.held_jobs import NO_PERSON
from lcp_engine.store.row_types import ChangeRow
from lcp_engine.workers.base import Hold

_REASONS = Reasons(ReasonCode.MERGE_CONFLICT, ReasonCode.MERGE_REFUSED)
TWIN = "twin"
"""The key of a change that names what has the same name in another Unicode form."""
WAIT_SECONDS = 30.0
"""How long a merge waits for writes to its files that are under way."""


def execute_merge(leased: LeasedJob) -> Succeeded | Failed | Hold:
    """Hold a merge that no person approved, if there is anything to merge; carry an approved one out.

    Raises errors that another attempt may not meet; the last attempt holds the merge.
    """
    try:
        return _Merge(leased).execute()
    except LcpError as error:
        return _REASONS.refusal_of(leased.row, error)


class _Merge:
    """One attempt of the job of a merge."""

    def __init__(self, leased: LeasedJob) -> None:
        self._instance, self._database, self._job = leased.instance, leased.instance.database, leased.row
        self._threads, self._open_root = leased.threads, leased.open_root
        self._params = MergeParams.model_validate(from_json(leased.row.params))

    def execute(self) -> Succeeded | Hold:
        row = self._database.read(lambda tx: stage_of(tx, self._job.mission_id))
        if row is None:
            return self._succeeded([], [])  # no job has begun in it
        kept = kept_of(row, self._job.id)
        files = staged_files_of(self._instance, self._job.mission_id, row.path)
        if not self._intents():
            with opened(self._instance, self._job.mission_id, self._open_root) as (root, stage):
                found = self._decide(root, stage, files, kept)
            if found is not None:
                return found
        carried = carry_out_all(self._database, self._job, self._intents(), self._threads, "merge")
        kept.remove()
        return self._outcome(carried, files)

    def _intents(self) -> list[ChangeRow]:
        return self._database.read(lambda tx: decided(tx, self._job)) if self._job.approved else []

    def _decide(
        self, root: Root, stage: Root, files: Sequence[StagedFile], kept: KeptFiles
    ) -> Succeeded | Hold | None:
        """Compare, and record all intents. The outcome if nothing is to be carried out."""
        judge = judge_of(self._instance, self._job.mission_id, root)
        with (
            self._threads.access(root, stage, writes=True) as access,
            lock_all(access, [(root, one.path) for one in files], Patience(WAIT_SECONDS)) as locked,
        ):
            if locked is None:
                message = f"files that are to be merged are still being written after {WAIT_SECONDS:g} s"
                raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
            place = place_of(root)
            close_others(
                self._database, [(normpath(f"{root.path}/{one.path}"), place) for one in files], locked
            )
            alone = [
                judged(one, _hash(held, root, one.path), state_of_file(access, stage, one.path), judge)
                for one, held in zip(files, locked, strict=True)
            ]
            compared = with_names_and_modes(alone, root, stage, access)
            found = dict(zip((one.path for one in files), locked, strict=True))
            if all(one.is_done for one in compared):
                return self._succeeded([], [])
            digest = digest_of_all(compared)
            sight = Sight(
                fingerprint(MERGE.kind, from_json(self._job.params)), PATH, digest, self._database.now()
            )
            if not self._job.approved:
                self._database.write(lambda tx: see(tx, self._job.id, NO_PERSON, sight))
                return Hold(_reason(compared))
            if has_drifted(self._database, self._job, root, PATH, digest):
                return Hold(ReasonCode.DRIFT)
            if (unknown := self._params.unknown(one.path for one in files)) is not None:
                raise unknown_file(unknown)
            taken = [one for one in compared if self._params.takes(one.file.path) and not one.is_done]
            if any(one.fault for one in taken):
                return Hold(_reason(taken))
            wanted = [self._wanted(one, found[one.file.path], access, stage) for one in _in_order(taken)]
            wanted = [one for one in wanted if one.after != one.compared.now or one.compared.mode_in_words]
            if not wanted:
                return self._succeeded([], self._left_out(files))
            if (full := no_room(root, sum(one.size for one in wanted), "merge")) is not None:
                raise full
            kept.add(stage, [(one.path, one.after) for one in wanted if one.after and not one.is_in_database])
            targets = [one.target(root) for one in wanted]
            decide(
                self._database, self._job, targets, MERGE_MODE,
                lambda: (it for one in wanted for it in one.contents(access, stage)),
            )  # fmt: skip
        return None

    def _wanted(self, one: Compared, held: Held, access: FileAccess, stage: Root) -> _Wanted:
        """A file that is to be merged. Raises `LcpError` for a part of it that cannot be taken."""
        path, is_whole = one.file.path, self._params.takes_whole(one.file.path)
        read = None if one.file.staged is None else access.read_unlocked(stage, path, 0 if is_whole else None)
        there = None if read is None else replace(read, data=None)
        wanted = _Wanted(one, held, self._instance.caps.preimage_bytes, there)
        if is_whole:
            return wanted
        staged = None if read is None else read.data
        replaced_, cap = wanted.before(), self._instance.caps.write_bytes
        before = None if replaced_ is None else replaced_.data
        return replace(wanted, part=part_of(self._params, path, before, staged, cap))

    def _outcome(self, carried: Carried, files: Sequence[StagedFile]) -> Succeeded | Hold:
        held = _REASONS.rest_of(carried)
        if held is not None:
            return held
        jobs = {one.path: one.jobs for one in files}
        changes = sorted(carried.changes, key=lambda one: one.path)
        merged = [_merged_file(one, jobs.get(one.path, ())) for one in changes]
        return self._succeeded(merged, self._left_out(files))

    def _left_out(self, files: Sequence[StagedFile]) -> list[str]:
        return [one.path for one in files if not self._params.takes(one.path)]

    @staticmethod
    def _succeeded(merged: Sequence[MergedFile], left_out: Sequence[str]) -> Succeeded:
        said = counted([one.change for one in merged]) or ["nothing to merge"]
        left = {"file": len(left_out), "hunk": sum(len(one.left_out) for one in merged)}
        said += [
            f"{count} {word}{'' if count == 1 else 's'} left out" for word, count in left.items() if count
        ]
        edited = sum(one.edited for one in merged)
        said += [f"{edited} as edited by a person"] if edited else []
        result = MergeResult(summary=", ".join(said), files=[*merged], left_out=[*left_out])
        return Succeeded(to_json(result.model_dump(mode="json")), 0 if merged else None)


def _merged_file(change: ChangeRow, jobs: Sequence[int]) -> MergedFile:
    stored = from_json(change.result)
    part, twin = object_in(stored.get(PART)), stored.get(TWIN)
    left_out = part.get("left_out")
    return MergedFile(
        path=change.path,
        change=what(change.sha256_before, change.sha256_after),
        jobs=[*jobs],
        left_out=[*map(str, left_out)] if isinstance(left_out, list) else [],
        edited=part.get("edited") is True,
        twin=twin if isinstance(twin, str) else None,
    )


@dataclass(frozen=True)
class _Wanted:
    """A file that is to be merged, locked, or the reason why its directory is not there; perhaps a `part` of it.

    What it replaces is kept up to `keeps` bytes; `there` is the file in the stage, without its bytes.
    """

    compared: Compared
    held: Held
    keeps: int
    there: Snapshot | None
    part: Part | None = None

    @property
    def path(self) -> str:
        return self.compared.file.path

    @property
    def after(self) -> str | None:
        """The hash of what it becomes, None if it is removed."""
        return self.compared.file.staged if self.part is None else sha256(self.part.data)

    @property
    def size(self) -> int:
        """Bytes of what it becomes."""
        return len(self.part.data) if self.part is not None else 0 if self.there is None else self.there.size

    @property
    def is_in_database(self) -> bool:
        """True if the database keeps what it becomes."""
        return self.part is not None or self.there is None or self.there.size <= MOST_IN_DATABASE

    def target(self, root: Root) -> Target:
        facts: dict[str, JsonValue] = {} if self.compared.twin is None else {TWIN: self.compared.twin}
        if self.part is not None:
            facts[PART] = {"left_out": [*self.part.left_out], "edited": self.part.is_edited}
        if self.compared.mode_in_words is not None:
            facts[MODES] = [self.compared.mode, self.compared.file.mode]
        made = missing_parents(root, self.path)
        return Target(
            root.path, place_of(root), self.path, self.compared.now, self.after, self.size, self._mode, made,
            facts=facts,
        )  # fmt: skip

    @property
    def _mode(self) -> int | None:
        """The mode bits of a file or directory that is removed, or is new."""
        if self.compared.file.staged is None:
            digest = self.held.digest() if isinstance(self.held, LockedFile) else None
            return None if digest is None else digest.mode
        return self.there.mode if self.compared.now is None and self.there is not None else None

    def contents(self, access: FileAccess, stage: Root) -> Iterator[Content]:
        """Contents to keep: the one that is replaced, and a new one that the database keeps."""
        before = self.before()
        if before is not None:
            yield before
        if self.part is not None:
            yield Content(sha256(self.part.data), len(self.part.data), self.part.data)
        elif self.after is not None and self.is_in_database:
            yield made(access, stage, self.path, self.after)

    def before(self) -> Content | None:
        """Content that is replaced. Raises `CONFLICT` if a program that takes no locks has changed it by now."""
        if not isinstance(self.held, LockedFile) or self.compared.now is None:
            return None
        return replaced(self.held, self.compared.now, self.keeps)


def _in_order(taken: Sequence[Compared]) -> list[Compared]:
    """Changes and creations in the mission's order, then removals: what was moved is never lost."""
    return sorted(taken, key=lambda one: one.file.staged is None)


def _hash(held: Held, root: Root, path: str) -> str | None:
    """Like `state_of_file`, of a file whose directory is locked, or is not there."""
    try:
        found = digest_of(held)
    except LcpError as error:
        return str(error.code)
    return absent(root, path) if found is None else found.sha256


def _reason(compared: Sequence[Compared]) -> Reason:
    conflicts = [one.file.path for one in compared if one.fault]
    if conflicts:
        return because(ReasonCode.MERGE_CONFLICT, files=in_words(conflicts))
    count = sum(not one.is_done for one in compared)
    twins = in_words([json.dumps(one.twin) for one in compared if one.twin is not None])
    beside = f", beside the same name in another Unicode form: {twins}" if twins else ""
    return because(ReasonCode.MERGE, count=count, files=f"{count:,} file{'' if count == 1 else 's'}{beside}")


CARRIED_OUT = OwnKind(
    execute=execute_merge,
    view=view_merge,
    path=PATH,
    text=merged_text,
    compared=merged_contents,
    content=merged_content,
)
