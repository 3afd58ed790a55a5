"""Bring what a command changed into the root of its mission, or into its stage: all of it or nothing, once (R31)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue

from lcp_engine.changes.change_set import (
    Carried,
    Content,
    Target,
    carry_out_all,
    close_others,
    decide,
    decided,
    digest_of,
    made,
    missing_parents,
    no_room,
    replaced,
)
from lcp_engine.changes.kept_files import MOST_IN_DATABASE, KeptFiles
from lcp_engine.changes.recovery import APPLY_MODE, KEPT, MODES
from lcp_engine.core.json_values import object_in
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import Digest, LockedFile, Snapshot
from lcp_engine.sandbox.directories import status_of
from lcp_engine.sandbox.file_access import ConfinedThreads, FileAccess, Patience, lock_all
from lcp_engine.sandbox.locks import Held
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import place_of
from lcp_engine.sandbox.synced_copy import sync_copy
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.row_types import JobRow

NOTE = "note"
"""The key in the result of the first change for what the caller noted with the decision."""
WAIT_SECONDS = 30.0
"""Seconds that a command's changes wait for writes to its files that are under way."""


@dataclass(frozen=True)
class Changed:
    """A file that a command changed: its hash and mode bits before and after, None where there was or is no file.

    A path that ends in `/` is that of a directory, a file of no bytes. The bits of one that stays may be None: they are
    not compared, or not changed.
    """

    path: str
    before: str | None
    after: str | None
    mode_before: int | None = None
    mode_after: int | None = None

    def is_what_was(self, now: Digest | Snapshot | None) -> bool:
        """True if the file is as the command found it; None is no file."""
        return _is(now, self.before, self.mode_before)

    def is_what_becomes(self, now: Digest | Snapshot | None) -> bool:
        """True if the file is as the command left it; None is no file."""
        return _is(now, self.after, self.mode_after)


@dataclass(frozen=True)
class Apply:
    """Applies what a command changed, as the changes of the leased `job`, beneath `root`: its mission's root or stage.

    New contents are found in `source` at the same paths, and kept in the database, or in the directory `kept` if they
    are large: it is made, and removed at the end. Replaced contents of more than `keeps` bytes are not kept, so that
    they cannot come back. `note` is stored with the decision.
    """

    database: Database
    job: JobRow
    threads: ConfinedThreads
    root: Root
    source: Root
    kept: Path
    keeps: int
    in_stage: bool = False
    note: Mapping[str, JsonValue] = field(default_factory=dict)

    def perform(self, changed: Sequence[Changed]) -> Carried:
        """Compare, decide and carry out; what an earlier attempt decided is finished instead.

        Nothing is done if `Carried.refused`, or if this raises: `CONFLICT` for a file of the root or the source that is
        not as it was, with the `files`, `WRONG_STATE` for one that is written for too long, `FILE_SYSTEM`. Once it is
        decided, a file that another program changes is left alone, and among `Carried.unmade`. Without a lease nothing
        is changed.
        """
        earlier = finish(self.database, self.job, self.threads)
        if earlier is not None:
            return earlier
        if self.in_stage:
            sync_copy(self.root)
        ordered = sorted((one for one in changed if one.after is not None), key=self._when)
        # Removals come last, what is in a directory before the directory.
        ordered += sorted(
            (one for one in changed if one.after is None), key=lambda one: one.path, reverse=True
        )
        with (
            self.threads.access(self.root, self.source, writes=True) as access,
            lock_all(access, [(self.root, one.path) for one in ordered], Patience(WAIT_SECONDS)) as locked,
        ):
            if locked is None:
                message = f"files that the command changed are still being written after {WAIT_SECONDS:g} s"
                raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
            self._decide(ordered, locked, access)
        return finish(self.database, self.job, self.threads) or Carried((), {})

    def _when(self, one: Changed) -> tuple[int, int, str]:
        """Place in the order: directories first, then files as the command wrote them, since `make` compares times.

        Of those of one tick of the clock, the inode that was made later is the later one.
        """
        found = None if one.path.endswith("/") else status_of(self.source.descriptor, one.path)
        return (0, 0, one.path) if found is None else (found.st_mtime_ns, found.st_ino, one.path)

    def _decide(self, changed: Sequence[Changed], locked: Sequence[Held], access: FileAccess) -> None:
        """Compare all files, keep what is replaced and written, and record the intents: the commit decides."""
        place = place_of(self.root)
        files = [(f"{self.root.path}/{one.path}".rstrip("/"), place) for one in changed]
        close_others(self.database, files, locked)
        wanted = self._compared(changed, locked, access)
        if not wanted:
            return
        targets, held_ = [one for one, _ in wanted], [held for _, held in wanted]
        action = "command" if self.in_stage else "change of the command"
        full = no_room(self.root, sum(one.size_bytes for one in targets), action)
        if full is not None:
            raise full
        targets[0] = replace(targets[0], facts={**targets[0].facts, NOTE: {**self.note}})
        large = [(one.path, one.after) for one in targets if one.after and KEPT in one.facts]
        KeptFiles(self.kept).add(self.source, large)
        decide(
            self.database, self.job, targets, APPLY_MODE,
            lambda: (it for one, held in zip(targets, held_, strict=True) for it in self._contents(one, held, access)),
        )  # fmt: skip

    def _compared(
        self, changed: Sequence[Changed], locked: Sequence[Held], access: FileAccess
    ) -> list[tuple[Target, Held]]:
        """The files that are not yet as the command left them. Raises `CONFLICT` with those that are neither."""
        wanted: list[tuple[Target, Held]] = []
        faults: dict[str, str] = {}
        for one, held in zip(changed, locked, strict=True):
            try:
                now = digest_of(held)
                if one.is_what_becomes(now):
                    continue
                if now is None and one.after is not None:
                    self.root.refuse_twin(one.path, beside=[other.path for other in changed])
                has_content = one.after not in (None, one.before)
                new = access.read_unlocked(self.source, one.path, 0) if has_content else None
                if not one.is_what_was(now):
                    faults[one.path] = f"{one.path!r} has changed since the command began"
                elif has_content and (new is None or new.sha256 != one.after):
                    faults[one.path] = f"{one.path!r} is not as the command left it"
                else:
                    wanted.append((self._target(one, now, new), held))
            except LcpError as error:
                faults[one.path] = error.failed.message
            except OSError:
                faults[one.path] = f"{one.path!r}: something else than a directory is above it"
        if faults:
            message = f"what the command changed is not applied: {'; '.join(faults.values())}"
            advice = "Run the command again, which then begins with the files as they are."
            raise LcpError(ErrorCode.CONFLICT, message, {"files": [*faults]}, advice)
        return wanted

    def _target(self, one: Changed, now: Digest | None, new: Snapshot | None) -> Target:
        facts: dict[str, JsonValue] = {}
        if now is not None and one.mode_after is not None and one.after is not None:
            facts[MODES] = [now.mode, one.mode_after]
        if new is not None and new.size > MOST_IN_DATABASE:
            facts[KEPT] = str(self.kept)
        return Target(
            self.root.path,
            place_of(self.root),
            one.path,
            one.before,
            one.after,
            0 if new is None else new.size,
            one.mode_after if now is None else now.mode if one.after is None else None,
            missing_parents(self.root, one.path),
            in_stage=self.in_stage,
            facts=facts,
        )

    def _contents(self, one: Target, held: Held, access: FileAccess) -> Iterator[Content]:
        """Contents to keep: the one that is replaced, and the new one unless it is large."""
        if one.before is not None and isinstance(held, LockedFile):
            yield replaced(held, one.before, self.keeps)
        if one.after is not None and one.after != one.before and KEPT not in one.facts:
            yield made(access, self.source, one.path, one.after)


def finish(database: Database, job: JobRow, threads: ConfinedThreads) -> Carried | None:
    """Carry out what an attempt of the job has decided; None if none has decided anything since its approval.

    Raises errors that another attempt may not meet.
    """
    intents = database.read(lambda tx: decided(tx, job))
    if not intents:
        return None
    kept = {str(place) for one in intents if (place := from_json(one.result).get(KEPT)) is not None}
    carried = carry_out_all(database, job, intents, threads, "change of the command")
    for place in kept:
        KeptFiles(Path(place)).remove()
    return carried


def note_of(carried: Carried) -> JsonObject:
    """The note that was stored with the decision."""
    found = (object_in(from_json(one.result).get(NOTE)) for one in carried.changes)
    return next((note for note in found if note), {})


def _is(now: Digest | Snapshot | None, sha: str | None, mode: int | None) -> bool:
    """True if the file is there with this hash, and with these bits if there are any; None is no file."""
    if now is None or sha is None:
        return now is None and sha is None
    return now.sha256 == sha and mode in (None, now.mode)
