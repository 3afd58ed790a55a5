"""Compute what a job would change if it ran now; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from pydantic import BaseModel, JsonValue

from lcp_engine.changes.own_kinds import OwnKind, own_kind
from lcp_engine.changes.set_view import SetView
from lcp_engine.changes.unified_diff import Diff, diff_bytes, replacing
from lcp_engine.clock import Micros
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import outcome_of
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.sandbox.file_access import HERE, FileAccess, Interrupted, confined_threads
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import open_known
from lcp_engine.store.changes import sha256
from lcp_engine.store.db.json_text import fingerprint
from lcp_engine.store.people import Sight
from lcp_engine.store.queries.mission_spec import spec_and_root, working_root
from lcp_engine.workers.base import (
    Context,
    FileEffect,
    Hold,
    Worker,
    too_large_to_change,
)


@dataclass(frozen=True)
class Preview:
    """A file effect that was not applied. `path` is relative to the root; "" if it is unknown.

    `found` is the current file: its SHA-256 in hex, None if there is none, or the code of its error.
    `refused` is why the job would write nothing. `unread` is the size of a current file that is too large for `before`.
    `mode` are the mode bits of a current file, which it keeps. `new_path` is where the file would be moved to. Of a
    job of the engine, `view` has all its files, `found` is the hash of what it would do to them, and `refused` is why
    it, or what a person has chosen of it, cannot be done.
    """

    path: str
    found: str | None
    before: bytes | None = None
    after: bytes | None = None
    refused: Failed | None = None
    unread: int = 0
    mode: int = 0
    new_path: str | None = None
    view: SetView | None = None

    @property
    def diff(self) -> Diff:
        if self.view is not None:
            return self.view.joined
        if self.refused is not None:
            return Diff(self.path, note=f"would not be written: {self.refused.message}")
        if self.new_path is not None:
            return Diff(self.path, note=f"moved to {self.new_path!r}, as it is")
        if self.unread:
            diff = replacing(self.path, self.unread, self.after)
        else:
            diff = diff_bytes(self.path, self.before, self.after)
        if self.after is None or not self.mode & 0o111 or self.path.endswith("/"):
            return diff
        kept = f"the file is executable (mode {self.mode:04o}) and stays so"
        return replace(diff, note="; ".join(filter(None, [diff.note, kept])))


class Previews:
    """Previews of jobs of any mission; each root is opened once, in a confined thread, until the end of the context."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._missions: dict[int, tuple[str, Root | None, FileAccess, str | None]] = {}
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def of(self, mission_id: int, kind: str, params: Mapping[str, JsonValue]) -> Preview | None:
        """Preview of the job; None for a kind without previews."""
        own = own_kind(kind)
        if own is not None:
            return self._of_own(own, mission_id, params)
        worker = self._instance.admission.workers.get(kind)
        if worker is None or worker.preview is None:
            return None
        try:
            context, files = self._context(mission_id, worker)
            return preview_of(worker, params, context, files)
        except LcpError as error:
            return Preview("", error.code, refused=error.failed)

    def _of_own(self, own: OwnKind, mission_id: int, params: Mapping[str, JsonValue]) -> Preview:
        try:
            view = own.view(self._instance, mission_id, params)
        except LcpError as error:
            return Preview(own.path, error.code, refused=error.failed)
        return Preview(view.path, view.digest, refused=view.refused, view=view)

    def with_sight(
        self, mission_id: int, kind: str, params: Mapping[str, JsonValue]
    ) -> tuple[Preview | None, Sight]:
        """The preview, and the record of having seen it."""
        at = self._instance.database.now()
        preview = self.of(mission_id, kind, params)
        return preview, sight_of(kind, params, preview, at)

    def _context(self, mission_id: int, worker: Worker[BaseModel]) -> tuple[Context, FileAccess]:
        if mission_id not in self._missions:
            self._missions[mission_id] = self._open(mission_id)
        spec_text, root, files, place = self._missions[mission_id]
        spec = spec_of(spec_text)
        policy = self._instance.admission.policy(spec, place)
        judge = policy.for_kind(worker.named, has_effects=worker.has_effects, writes=worker.writes)
        # In a stage, the root's own path is a name of it.
        aliases = () if root is None or place in (None, root.path) else (str(place),)
        return Context(root, (*spec.root_aliases, *aliases), judge, self._instance.caps, approved=True), files

    def _open(self, mission_id: int) -> tuple[str, Root | None, FileAccess, str | None]:
        spec_text, stated, known = self._instance.database.read(
            lambda tx: (*spec_and_root(tx, mission_id), working_root(tx, mission_id))
        )
        if known is None:
            return spec_text, None, HERE, None
        root = self._opened.enter_context(open_known(known))
        files = self._opened.enter_context(confined_threads(self._instance.isolation).access(root))
        return spec_text, root, files, stated


def preview_of(
    worker: Worker[BaseModel],
    params: Mapping[str, JsonValue],
    context: Context,
    files: FileAccess = HERE,
) -> Preview | None:
    """Preview of a job of that worker, read through `files`; None for a kind without previews."""
    preview = worker.preview
    if preview is None:
        return None
    try:
        read = worker.read(params)
    except LcpError as error:
        return Preview("", error.code, refused=error.failed)
    outcome = outcome_of(worker, worker.kind, lambda: preview(read, context))
    match outcome:
        case FileEffect():
            return _composed(outcome, context, files)
        case Failed() as failed:
            return Preview("", failed.code, refused=failed)
        case Hold(reason):
            return Preview(
                "",
                ErrorCode.NOT_ALLOWED,
                refused=Failed(ErrorCode.NOT_ALLOWED, str(reason), advice="Approve the job to let it run."),
            )
        case _:
            return None


def sight_of(kind: str, params: Mapping[str, JsonValue], preview: Preview | None, at: Micros) -> Sight:
    """The record of having seen a job and its preview, both read after `at`."""
    mark = fingerprint(kind, params)
    if preview is None:
        return Sight(mark, None, None, at)
    after = None if preview.after is None else sha256(preview.after)
    return Sight(mark, preview.path, preview.found, at, after)


def _composed(effect: FileEffect, context: Context, files: FileAccess) -> Preview:
    cap, (path, *new_path) = context.caps.write_bytes, effect.paths
    try:
        current = files.read_unlocked(context.root, path, cap)
    except Interrupted:
        raise
    except LcpError as error:
        return Preview(path, error.code, refused=error.failed)
    before = None if current is None else current.data
    found = None if current is None else current.sha256
    if current is not None and current.data is None and effect.needs_content:
        return Preview(path, found, refused=too_large_to_change(path, current.size, cap))
    try:
        effect.check_names(context.root)
        after = effect.compose(before, cap, is_there=current is not None)
        if new_path:
            there = files.read_unlocked(context.root, effect.path, 0)
            effect.check_free(is_there=there is not None)
            return Preview(path, found, new_path=effect.path)
    except Interrupted:
        raise
    except LcpError as error:
        return Preview(path, found, before, refused=error.failed)
    return Preview(
        path,
        found,
        before,
        after,
        unread=current.size if current is not None and before is None else 0,
        mode=0 if current is None else current.mode,
    )
