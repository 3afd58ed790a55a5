"""Find what a mission changed in its stage, and compare it with the root (R28).

What there is to merge follows from the journal: each file from before the mission's first change in its stage, or from
what an earlier merge made of it, to after its last change. In the root a file is as it was (it is changed), is as the
stage has it (nothing is left to do), or is something else, a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from lcp_engine.changes.change_set import missing_parents
from lcp_engine.changes.recovery import modes_of
from lcp_engine.changes.set_view import new_mode_in_words
from lcp_engine.core.kinds import WRITE
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.policy import KindNames, PathPolicy, Policy, Ruling, Verdict, strictest
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.stages.merge_worker import MERGE
from lcp_engine.features.stages.store import kinds_in_stage, merged_from_stage, stage_of
from lcp_engine.sandbox.atomic_write import Snapshot
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import KnownRoot, open_known
from lcp_engine.store.changes import changes_in_stage, sha256
from lcp_engine.store.queries.mission_spec import spec_and_root
from lcp_engine.store.row_types import ChangeRow


@dataclass(frozen=True)
class StagedFile:
    """A file that the mission changed in its stage: its hash before and after, None where there is no file.

    `mode` are the bits that a command gave a file that stays.
    """

    path: str
    base: str | None
    staged: str | None
    jobs: tuple[int, ...]
    mode: int | None = None


Judge: TypeAlias = Callable[[StagedFile], Ruling]


class Reads(Protocol):
    """Reads files, as `FileAccess` does."""

    def read_unlocked(self, root: Root, path: str, cap: int | None) -> Snapshot | None: ...


@dataclass(frozen=True)
class Compared:
    """A staged file, and what it is in the root: its hash, None if there is no file, or the code of an error.

    `fault` is why it cannot be merged, in words. `twin` is what the root has, and will have beside it, under a name
    that differs only in its Unicode form. `mode` are its bits in the root, if the stage changes them; `made` are those
    of a file that the root does not have.
    """

    file: StagedFile
    now: str | None
    fault: str | None = None
    twin: str | None = None
    mode: int | None = None
    made: int | None = None

    @property
    def twin_in_words(self) -> str | None:
        """Names the twin in ASCII, since its letters would look the same."""
        return (
            None
            if self.twin is None
            else f"the root has {json.dumps(self.twin)}, the same name in another Unicode form; there will be both"
        )

    @property
    def mode_in_words(self) -> str | None:
        """The change of its mode bits."""
        is_same = self.file.mode is None or self.mode in (None, self.file.mode)
        return None if is_same else f"its mode becomes {self.file.mode:o} instead of {self.mode:o}"

    @property
    def is_done(self) -> bool:
        """True if the root has what the stage has."""
        return self.now == self.file.staged and self.fault is None and self.mode_in_words is None


def digest_of_all(compared: Sequence[Compared]) -> str:
    """The hash of what there is to merge and of what it meets, whatever part of it a person takes."""
    facts = [
        [
            *(one.file.path, one.file.base, one.file.staged, one.now, one.fault),
            *filter(None, (one.twin, one.mode_in_words, new_mode_in_words(one.made))),
        ]
        for one in compared
    ]
    return sha256(json.dumps(facts).encode())


def staged_files_of(instance: Instance, mission_id: int, stage: str) -> list[StagedFile]:
    """Files that the mission changed in the stage at this path, unless it took them back.

    They stand in the order of the jobs that changed them first: jobs of several lanes end in any order.
    """
    made = instance.database.read(lambda tx: changes_in_stage(tx, mission_id, stage))
    merged = instance.database.read(lambda tx: merged_from_stage(tx, mission_id))
    by_path: dict[str, list[ChangeRow]] = {}
    for change in made:
        by_path.setdefault(change.path, []).append(change)
    files = [
        StagedFile(
            path,
            _base_of(of_path[0], merged),
            of_path[-1].sha256_after,
            tuple(dict.fromkeys(change.job_id for change in of_path)),
            None if of_path[-1].sha256_after is None else _mode_given(of_path),
        )
        for path, of_path in by_path.items()
    ]
    return sorted((one for one in files if one.base != one.staged or one.mode), key=lambda one: one.jobs[0])


def _base_of(first: ChangeRow, merged: Mapping[str, tuple[int, str | None]]) -> str | None:
    """The hash that a file had in the root when the mission began to change it, or got by a merge since."""
    change, after = merged.get(first.path, (0, None))
    return after if change > first.id else first.sha256_before


def _mode_given(changes: Sequence[ChangeRow]) -> int | None:
    """The mode bits that the last change of them gave a file."""
    return next((modes[1] for one in reversed(changes) if (modes := modes_of(one)) is not None), None)


def compare(one: StagedFile, root: Root, stage: Root, access: Reads, judge: Judge) -> Compared:
    return judged(one, state_of_file(access, root, one.path), state_of_file(access, stage, one.path), judge)


def with_names_and_modes(
    compared: Sequence[Compared], root: Root, stage: Root, access: Reads
) -> list[Compared]:
    """Those files with the twins that a merge of them all would leave in the root, and with modes that it gives."""
    removed = {one.file.path for one in compared if one.file.staged is None}

    def twin(one: Compared) -> str | None:
        with suppress(OSError):
            found = None if one.file.staged is None else root.twin_of(one.file.path)
            return None if found in removed else found
        return None

    def mode(where: Root, path: str) -> int | None:
        with suppress(LcpError):
            found = access.read_unlocked(where, path, 0)
            return None if found is None else found.mode
        return None

    return [
        replace(
            one,
            twin=twin(one),
            mode=None if one.file.mode is None else mode(root, one.file.path),
            made=mode(stage, one.file.path) if one.now is None and not one.file.path.endswith("/") else None,
        )
        for one in compared
    ]


def state_of_file(access: Reads, root: Root, path: str) -> str | None:
    """The hash of a file, None if there is none, or the code of the error why it cannot be read."""
    try:
        found = access.read_unlocked(root, path, 0)
    except LcpError as error:
        return absent(root, path) if error.code is ErrorCode.PATH_NOT_FOUND else str(error.code)
    return absent(root, path) if found is None else found.sha256


def absent(root: Root, path: str) -> str | None:
    """None for a file that is not there; the code of an error if something else than a directory is above it."""
    try:
        missing_parents(root, path)
    except OSError:
        return str(ErrorCode.NOT_A_FILE)
    return None


def judged(one: StagedFile, now: str | None, there: str | None, judge: Judge) -> Compared:
    fault = None
    ruling = judge(one)
    if one.staged is None and there == ErrorCode.NOT_A_FILE:
        fault = "a directory has its place in the stage, and no merge makes one of a file"
    elif there != one.staged:
        fault = "something else than the mission's jobs has changed it in the stage"
    elif now not in (one.base, one.staged):
        fault = _difference(one, now)
    elif ruling.verdict is Verdict.DENY:
        fault = f"it is denied: {ruling.reason}"
    return Compared(one, now, fault)


def _difference(one: StagedFile, now: str | None) -> str:
    if now in set(ErrorCode):
        return f"it is not a file in the root that can be written ({now})"
    if now is None:
        return "it is gone from the root since the stage was made"
    return f"it {'was created' if one.base is None else 'has changed'} in the root since the stage was made"


def judge_of(instance: Instance, mission_id: int, root: Root) -> Judge:
    """The judge of a merge: for each file it applies the policy for the jobs that changed it, and that for merges."""
    spec_text, kinds = instance.database.read(
        lambda tx: (spec_and_root(tx, mission_id)[0], kinds_in_stage(tx, mission_id))
    )
    policy = instance.admission.policy(spec_of(spec_text), root.path)
    judges = {kind: _judge_of_kind(instance, policy, kind) for kind in {MERGE.kind, *kinds.values()}}

    def judge(one: StagedFile) -> Ruling:
        concerned = dict.fromkeys((MERGE.kind, *(kinds[job] for job in one.jobs)))
        return strictest([judges[kind](one.path) for kind in concerned])

    return judge


def _judge_of_kind(instance: Instance, policy: Policy, kind: str) -> PathPolicy:
    worker = instance.admission.workers.get(kind)
    unknown = KindNames((kind,)) if kind == MERGE.kind else KindNames((kind,), restricted_as=(WRITE,))
    return policy.for_kind(unknown if worker is None else worker.named, has_effects=True, writes=True)


@contextmanager
def opened(instance: Instance, mission_id: int, open_root: Callable[[], Root]) -> Iterator[tuple[Root, Root]]:
    """The root of a mission and its stage."""
    known = _known_stage(instance, mission_id)
    with open_root() as root, open_known(known) as stage:
        yield root, stage


def _known_stage(instance: Instance, mission_id: int) -> KnownRoot:
    """The stage of a mission as it is stored. Raises `NOT_FOUND` if it has none (any more)."""
    found = instance.database.read(lambda tx: stage_of(tx, mission_id))
    if found is None:
        message = f"mission {mission_id} has no stage: none was made yet, or its merge was decided"
        raise LcpError(ErrorCode.NOT_FOUND, message)
    return found.known
