"""Decide what an undo takes back, and write its intents (R20; one transaction each)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from pydantic import JsonValue
from sqlalchemy import bindparam, select, text

from lcp_engine.core.change_history import Effect, Timeline, timeline
from lcp_engine.core.job_states import OPEN
from lcp_engine.engine.plans.progress import refresh
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.store.changes import intend, kept_size, what
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.queries.history import known_id
from lcp_engine.store.queue import find_jobs, live_jobs
from lcp_engine.store.row_types import ChangeRow
from lcp_engine.store.schema import changes
from lcp_engine.workers.registry import UNDO_KIND

UNDO_ATTEMPTS = 3
UNDO_PRIORITY = 100
"""Before everything else of its mission: what runs after it finds the files as they are to be."""

_COLUMNS = tuple(changes.c[field.name] for field in fields(ChangeRow))
_OF_FILES = Statement(
    select(*_COLUMNS)
    .where(
        text("state = 'applied'"),
        changes.c.file.in_(select(changes.c.file).where(changes.c.mission_id == bindparam("mission"))),
    )
    .order_by(changes.c.id)
)


@dataclass(frozen=True)
class Wish:
    """What is to be taken back: everything of a mission, or what one job of it did."""

    mission_id: int
    job_id: int | None = None

    @property
    def name(self) -> str:
        return f"mission {self.mission_id}" if self.job_id is None else f"job {self.job_id}"


@dataclass(frozen=True)
class Restoration:
    """One file that is brought back to what it was before `undoes`; hashes are None where there is no file.

    `mode` are the bits of a file that comes back; `made` the directories that are taken away with it if empty.
    """

    file: str
    root: str
    path: str
    undoes: int
    sha256_now: str | None
    sha256_then: str | None
    size_bytes: int
    mode: int | None
    made: tuple[str, ...]

    @property
    def json(self) -> dict[str, JsonValue]:
        return {"path": self.path, "change": what(self.sha256_now, self.sha256_then)}


def find_wish(tx: Tx, mission_id: int | None, job_id: int | None) -> Wish:
    """What to take back. Raises `NOT_FOUND`."""
    if job_id is None:
        assert mission_id is not None
        return Wish(known_id("mission", mission_id))
    found = find_jobs(tx, [known_id("job", job_id)])
    if not found:
        raise LcpError(ErrorCode.NOT_FOUND, f"job {job_id} is not in the database")
    return Wish(found[0].mission_id, job_id)


def open_undo(ledger: Ledger, mission_id: int) -> int | None:
    """The job of an undo of the mission that was begun and has not ended."""
    mission = ledger.mission(mission_id)
    found = (job.id for job in live_jobs(ledger, mission) if job.kind == UNDO_KIND and job.state in OPEN)
    return next(found, None)


def check_quiet(ledger: Ledger, wish: Wish) -> None:
    """Raises `WRONG_STATE` where jobs of the mission are queued or running, `NOT_FOUND` where there is none."""
    mission = ledger.mission(wish.mission_id)
    if mission.queued + mission.running == 0:
        return
    counts = [(mission.queued, "queued"), (mission.running, "running")]
    fact = " and ".join(f"{count} {word}" for count, word in counts if count)
    message = f"mission {mission.id} must have no queued or running jobs for an undo; it has {fact}"
    raise LcpError(ErrorCode.WRONG_STATE, message)


def restorations(tx: Tx, wish: Wish) -> list[Restoration]:
    """What has to be done to the files, the newest change first; empty where nothing stands.

    Raises `CONFLICT` where a later change of another job stands on a file, or a content before was not kept.
    """
    rows = {row[0]: ChangeRow(*row) for row in tx.rows(_OF_FILES, mission=wish.mission_id)}
    line = timeline(Effect(row.id, row.mission_id, row.job_id, row.file, row.undoes) for row in rows.values())
    first: dict[str, ChangeRow] = {}
    for row in rows.values():
        if _is_wished(wish, row) and row.id not in line.undone_by:
            first.setdefault(row.file, row)
    later = {row.path: by for row in first.values() if (by := _later(wish, line, rows, row)) is not None}
    lost = {
        row.path: f"{row.path!r} cannot come back: its content before job {row.job_id} was too large to keep"
        for row in first.values()
        if row.sha256_before is not None and kept_size(tx, row.sha256_before) is None
    }
    if later or lost:
        raise refusal(wish, [*later.values(), *lost.values()], [*later, *lost])
    made = {
        (row.root, directory)
        for row in rows.values()
        if row.mission_id == wish.mission_id
        for directory in _made(row)
    }
    found = [_restoration(tx, row, rows[line.last[row.file].id], made) for row in first.values()]
    return sorted(found, key=lambda one: -one.undoes)


def refusal(wish: Wish, reasons: Sequence[str], files: Sequence[str]) -> LcpError:
    """Why nothing is undone, for each file."""
    message = f"{wish.name} cannot be undone: {'; '.join(reasons)}"
    return LcpError(ErrorCode.CONFLICT, message, {"files": list(files)})


def record(
    ledger: Ledger, wish: Wish, wanted: Sequence[Restoration], modes: Mapping[str, int], *, by: str
) -> int:
    """Write the intents of an undo and queue its job: from the commit on it is decided. The job's id.

    `modes` are the bits of the files that will be gone. Raises `WRONG_STATE` like `check_quiet`.
    """
    check_quiet(ledger, wish)
    mission = ledger.mission(wish.mission_id)
    of: dict[str, JsonValue] = {"mission": wish.mission_id}
    if wish.job_id is not None:
        of = {"job": wish.job_id}
    new = NewJobRow(
        name=f"undo {wish.name}",
        kind=UNDO_KIND,
        params=to_json(of),
        priority=UNDO_PRIORITY,
        max_attempts=UNDO_ATTEMPTS,
    )
    job_id = ledger.create(mission, new)
    ledger.note(mission, "decided", job_id, {"by": by, "decision": "undo", **of})
    for one in wanted:
        intend(ledger.tx, _intent(wish, job_id, one, modes.get(one.file)))
    refresh(ledger, mission)
    return job_id


def _is_wished(wish: Wish, row: ChangeRow) -> bool:
    if wish.job_id is not None:
        return row.job_id == wish.job_id
    return row.mission_id == wish.mission_id and row.undoes is None


def _later(wish: Wish, line: Timeline, rows: dict[int, ChangeRow], first: ChangeRow) -> str | None:
    """Which change that is no part of this undo stands on the file since `first`; None where there is none."""
    effect = Effect(first.id, first.mission_id, first.job_id, first.file, first.undoes)
    if first.undoes is not None:
        by = None if line.is_as_after(effect) else line.last[first.file]
    else:
        since = (one for one in line.standing(first.file) if one.id > first.id)
        by = next((one for one in since if not _is_wished(wish, rows[one.id])), None)
    if by is None:
        return None
    return f"{first.path!r} was changed since by job {by.job_id} of mission {by.mission_id}"


def _made(row: ChangeRow) -> list[str]:
    """The directories that were made for a change; those of an undo's intent are the ones to take away."""
    return [] if row.undoes is not None else [str(directory) for directory in json.loads(row.made)]


def _restoration(tx: Tx, first: ChangeRow, last: ChangeRow, made: set[tuple[str, str]]) -> Restoration:
    parents = [first.path[:at] for at, letter in enumerate(first.path) if letter == "/"]
    is_gone = first.sha256_before is None
    mode = from_json(first.result).get("mode") if first.undoes is not None else None
    return Restoration(
        file=first.file,
        root=first.root,
        path=first.path,
        undoes=first.id,
        sha256_now=last.sha256_after,
        sha256_then=first.sha256_before,
        size_bytes=0 if first.sha256_before is None else kept_size(tx, first.sha256_before) or 0,
        mode=mode if isinstance(mode, int) else None,
        made=tuple(parent for parent in parents if is_gone and (first.root, parent) in made),
    )


def _intent(wish: Wish, job_id: int, one: Restoration, removed_mode: int | None) -> ChangeRow:
    mode = removed_mode if one.sha256_then is None else one.mode
    return ChangeRow(
        id=0,
        mission_id=wish.mission_id,
        job_id=job_id,
        attempt=1,
        root=one.root,
        path=one.path,
        file=one.file,
        mode="remove" if one.sha256_then is None else "restore",
        state="intent",
        sha256_before=one.sha256_now,
        sha256_after=one.sha256_then,
        size_bytes=one.size_bytes,
        temporary=temporary_name(),
        made=to_json(list(one.made)),
        result=to_json({} if mode is None else {"mode": mode}),
        undoes=one.undoes,
    )
