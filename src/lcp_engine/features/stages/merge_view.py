"""Show what a merge of a stage would do now: each file with what it was changed for, and its hunks (R25, R28)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pydantic import ValidationError

from lcp_engine.changes.own_kinds import Params
from lcp_engine.changes.set_view import SetView, data_of, difference, new_mode_in_words
from lcp_engine.changes.unified_diff import Contents, Diff, diff_bytes
from lcp_engine.core.refused_values import explain_first
from lcp_engine.core.safe_text import shortened
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.stages.merge_parts import part_of, text_of
from lcp_engine.features.stages.merge_worker import MergeParams
from lcp_engine.features.stages.staged_files import (
    Compared,
    Reads,
    StagedFile,
    compare,
    digest_of_all,
    judge_of,
    opened,
    staged_files_of,
    with_names_and_modes,
)
from lcp_engine.features.stages.store import purposes
from lcp_engine.sandbox.atomic_write import Snapshot
from lcp_engine.sandbox.entries import read_unlocked
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import open_known
from lcp_engine.store.changes import sha256
from lcp_engine.store.queries.mission_spec import changed_root

PATH = "what it merges"
"""What an approval of a merge names as its file."""
_HEAD = ("--- the root", "+++ the root with what the stage has")
"""A diff begins with two lines of names."""
_NOTHING = "the stage has nothing that the root has not"
_MOST_WORDS = 160
_ROOM = 64 * 1024 * 1024
"""Bytes of each root that are read at once."""
_FOR_GOOD = "it is too large to be kept, so that this cannot be undone"


def view_merge(instance: Instance, mission_id: int, stated: Params) -> SetView:
    """View of what the merge of a mission would do now.

    Raises `INVALID_PARAMS`, and `LcpError` if the root or the stage cannot be opened.
    """
    params, database = _params(stated), instance.database
    known = database.read(lambda tx: changed_root(tx, mission_id))
    assert known is not None
    threads = confined_threads(instance.isolation)
    with opened(instance, mission_id, lambda: open_known(known)) as (root, stage):
        files = staged_files_of(instance, mission_id, stage.path)
        read_once = partial(_read_all, [one.path for one in files], instance.caps.write_bytes)
        read = [(where, threads.read(where, partial(read_once, where))) for where in (root, stage)]
        with threads.access(root, stage) as slow:
            access = _ReadBefore(slow, {id(where): found for where, found in read})
            judge = judge_of(instance, mission_id, root)
            compared = with_names_and_modes(
                [compare(one, root, stage, access, judge) for one in files], root, stage, access
            )
            found = _Found(root, stage, access, instance.caps.write_bytes, instance.caps.preimage_bytes)
            said_of = database.read(lambda tx: purposes(tx, mission_id))
            moves = _moves(one.file for one in compared)
            shown = [_shown(found, one, params, said_of, moves.get(one.file.path)) for one in compared]
    unknown = params.unknown(one.path for one in files)
    refused = next((one for _, one in shown if one is not None), None)
    if unknown is not None:
        refused = unknown_file(unknown).failed
    return SetView(tuple(diff for diff, _ in shown), digest_of_all(compared), refused, PATH, _HEAD, _NOTHING)


def merged_text(instance: Instance, mission_id: int, path: str, stated: Params) -> str:
    """The text that a merge with these params would give a file, to be edited.

    Raises `INVALID_PARAMS` for a file that is not in the merge, or is not text; `TOO_LARGE`; and like `view_merge`.
    """
    params, contents = _params(stated), _contents(instance, mission_id, path)
    if path in params.edits:
        return params.edits[path]
    part = part_of(params, path, contents.before, contents.after, instance.caps.write_bytes)
    return text_of(path, contents.after if part is None else part.data)


def merged_contents(instance: Instance, mission_id: int, path: str, stated: Params) -> Contents:
    """Contents that the diff of a file of a merge with these params compares. Raises like `merged_text`."""
    params, contents = _params(stated), _contents(instance, mission_id, path)
    if path not in params.edits:
        return contents
    part = part_of(params, path, contents.before, contents.after, instance.caps.write_bytes)
    return contents if part is None else replace(contents, after=part.data)


def _contents(instance: Instance, mission_id: int, path: str) -> Contents:
    """The contents of a file of the merge in the root and in the stage."""
    known, cap = instance.database.read(lambda tx: changed_root(tx, mission_id)), instance.caps.write_bytes
    assert known is not None
    threads = confined_threads(instance.isolation)
    with opened(instance, mission_id, lambda: open_known(known)) as (root, stage):
        if all(path != one.path for one in staged_files_of(instance, mission_id, stage.path)):
            raise unknown_file(path)
        with threads.access(root, stage) as access:
            before, staged = _Found(root, stage, access, cap, instance.caps.preimage_bytes).both(path)
    for side in (before, staged):
        if side is not None and side.data is None:
            message = f"{path!r} has {side.size:,} bytes; at most {cap:,} can be shown or edited"
            raise LcpError(ErrorCode.TOO_LARGE, message, advice="Take it as it is, or leave it out.")
    return Contents(data_of(before), data_of(staged))


def _params(stated: Params) -> MergeParams:
    try:
        return MergeParams.model_validate(dict(stated))
    except ValidationError as error:
        message = f"the params of a merge are not valid: {explain_first(error, MergeParams)}"
        raise LcpError(ErrorCode.INVALID_PARAMS, message) from error


def unknown_file(path: str) -> LcpError:
    """The error for a path that is not in the merge."""
    message = f"{path!r} is not a file that the mission changed in its stage"
    return LcpError(ErrorCode.INVALID_PARAMS, message, advice="Name files as the diff of the merge does.")


_Read: TypeAlias = dict[str, Snapshot | LcpError | None]


def _read_all(paths: Sequence[str], cap: int, root: Root) -> _Read:
    """Read files, with their contents as long as there is room for all of them together."""
    read, room = _Read(), _ROOM
    for path in paths:
        try:
            found = read_unlocked(root, path, min(cap, room))
        except LcpError as error:
            read[path] = error
            continue
        room -= len(found.data or b"") if found else 0
        read[path] = found
    return read


@dataclass(frozen=True)
class _ReadBefore:
    """Answers from what was read of each root, in one call of a confined thread; reads what had no room there."""

    slow: Reads
    read: Mapping[int, _Read]
    """By the identity of the root."""

    def read_unlocked(self, root: Root, path: str, cap: int | None) -> Snapshot | None:
        found = self.read[id(root)][path]
        if isinstance(found, LcpError):
            raise found
        if found is not None and found.data is None and cap != 0:
            return self.slow.read_unlocked(root, path, cap)
        return found


@dataclass(frozen=True)
class _Found:
    """Reads the files of a root and of its stage, up to `cap` bytes; a merge `keeps` what it replaces up to as many."""

    root: Root
    stage: Root
    access: Reads
    cap: int
    keeps: int

    def both(self, path: str) -> tuple[Snapshot | None, Snapshot | None]:
        """Files of the root and the stage at a path; None where there is no file that can be read."""
        return self._read(self.root, path), self._read(self.stage, path)

    def _read(self, root: Root, path: str) -> Snapshot | None:
        try:
            return self.access.read_unlocked(root, path, self.cap)
        except LcpError:
            return None


def _moves(files: Iterable[StagedFile]) -> dict[str, str]:
    """Words for each file that is new with the content of a removed one, and for that one."""
    removed, words = dict[str | None, str](), dict[str, str]()
    for one in (known := [*files]):
        if one.staged is None and one.base != sha256(b""):
            removed[one.base] = one.path
    for one in known:
        if one.base is None and (old := removed.pop(one.staged, None)) is not None:
            words[one.path] = f"with the content of {old!r}, which is removed"
            words[old] = f"its content is that of {one.path!r}, which is new"
    return words


def _shown(
    found: _Found, one: Compared, params: MergeParams, said_of: Mapping[int, str], move: str | None
) -> tuple[Diff, Failed | None]:
    """Diff of what the merge does to a file, and what for; or why that choice cannot be taken."""
    diff, refused = _chosen(found, one, params)
    said = "; ".join(filter(None, (said_of.get(job) for job in one.file.jobs)))
    notes = (
        None if one.file.base == one.file.staged else diff.note,
        None if params.takes(one.file.path) else "left out",
        "as edited by a person" if one.file.path in params.edits else None,
        None if refused is None else f"CONFLICT: {refused.message}",
        None if one.fault is None else f"CONFLICT: {one.fault}",
        move,
        one.twin_in_words,
        one.mode_in_words,
        new_mode_in_words(one.made),
        f"for {shortened(said, _MOST_WORDS)}" if said else None,
    )
    return replace(diff, note="; ".join(filter(None, notes)) or None), refused


def _chosen(found: _Found, one: Compared, params: MergeParams) -> tuple[Diff, Failed | None]:
    path = one.file.path
    diff, before, after = _difference_of(found, one)
    if one.fault is None and not one.is_done and not params.takes_whole(path) and params.takes(path):
        try:
            part = part_of(params, path, before, after, found.cap)
        except LcpError as error:
            return _numbered(diff, ()), error.failed
        if part is not None and part.is_edited:
            return diff_bytes(path, before, part.data), None
        return _numbered(diff, () if part is None else part.left_out), None
    return _numbered(diff, ()), None


def _numbered(diff: Diff, left_out: Collection[str]) -> Diff:
    """The diff of a file, whose hunks say their numbers if it has several, and whether they are left out."""
    if len(diff.hunks) < 2:
        return diff
    lines = [*diff.lines[:2]]
    for number, hunk in enumerate(diff.hunks, 1):
        word = ", left out" if hunk.header in left_out else ""
        lines += [f"{hunk.header} hunk {number} of {len(diff.hunks)}{word}", *hunk.lines[1:]]
    return replace(diff, lines=tuple(lines))


def _difference_of(found: _Found, one: Compared) -> tuple[Diff, bytes | None, bytes | None]:
    """The whole change of a file, with the contents that were compared."""
    path = one.file.path
    if one.is_done:
        return Diff(path, note="the root has it already"), None, None
    before, after = found.both(path)
    diff, old, new = difference(path, before, after)
    if before is not None and before.size > found.keeps:
        diff = replace(diff, note="; ".join(filter(None, (diff.note, _FOR_GOOD))))
    return diff, old, new
