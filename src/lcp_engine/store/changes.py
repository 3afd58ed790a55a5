"""Store the journal of file effects: intents, their outcomes, and the contents before (R20)."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from sqlalchemy import bindparam, func, insert, select, text, update

from lcp_engine.clock import Micros
from lcp_engine.sandbox.root_identity import is_same_place
from lcp_engine.store.db.json_text import JsonObject, from_json, to_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.file_changes import has_undone, timeline_of
from lcp_engine.store.row_types import ChangeRow
from lcp_engine.store.schema import blobs, changes, jobs, missions

# Of the older changes, which do not say where they were made, those in the root of the launch were made there.
_PLACE = func.coalesce(
    changes.c.root_identity,
    select(missions.c.root_identity)
    .where(missions.c.id == changes.c.mission_id, missions.c.root == changes.c.root)
    .scalar_subquery(),
)
_CHANGE = select(
    *(_PLACE if field.name == "root_identity" else changes.c[field.name] for field in fields(ChangeRow))
)
_OPEN = Statement(_CHANGE.where(text("state = 'intent'"), changes.c.file == bindparam("file")))
_OPEN_OF_MISSION = Statement(
    _CHANGE.where(changes.c.mission_id == bindparam("mission"), text("state = 'intent'")).order_by(
        changes.c.id
    )
)
_LEFT_OPEN = Statement(
    _CHANGE.join_from(changes, jobs, changes.c.job_id == jobs.c.id)
    .where(
        text("changes.state = 'intent'"),
        text("jobs.state <> 'running'"),
        # A change set whose job is queued carries out all of them or none.
        text(
            "(jobs.state <> 'queued' OR (changes.undoes IS NULL AND changes.mode NOT IN ('merge', 'apply')))"
        ),
    )
    .order_by(changes.c.id)
)
_OF_JOB = Statement(_CHANGE.where(changes.c.job_id == bindparam("job")).order_by(changes.c.id.desc()))
_OF_MISSION = Statement(
    _CHANGE.where(
        changes.c.mission_id == bindparam("mission"), text("state = 'applied'"), changes.c.staged.is_(None)
    ).order_by(changes.c.id)
)
_IN_STAGE = Statement(
    _CHANGE.where(
        changes.c.mission_id == bindparam("mission"),
        changes.c.root == bindparam("root"),
        text("state = 'applied'"),
        changes.c.staged.is_not(None),
    ).order_by(changes.c.id)
)
_APPLIED_OF_FILES = Statement(
    _CHANGE.where(
        text("state = 'applied'"),
        changes.c.staged.is_(None),
        changes.c.file.in_(select(changes.c.file).where(changes.c.mission_id == bindparam("mission"))),
    ).order_by(changes.c.id)
)
# Of the kinds that do not bring what is in one file to another one there are many changes.
_BROUGHT = Statement(
    text(
        "SELECT c.id, c.job_id, c.path, c.sha256_after, j.kind, j.params, c.intended_at "
        "FROM changes c JOIN jobs j ON j.id = c.job_id "
        "WHERE c.mission_id = :mission AND c.id > :after AND c.undoes IS NULL AND j.kind NOT IN "
        "('write_file', 'rewrite_file', 'edit_file', 'delete_file', 'make_directory', 'merge', 'undo') ORDER BY c.id"
    )
)
_PARAMS_OF = Statement(select(jobs.c.params).where(jobs.c.id == bindparam("job")))
_NEW = (*(field.name for field in fields(ChangeRow) if field.name != "id"), "intended_at", "closed_at")
_INTEND = Statement(insert(changes).values({name: bindparam(name) for name in _NEW}).returning(changes.c.id))
_CLOSE = Statement(
    update(changes)
    .where(changes.c.id == bindparam("change"), text("state = 'intent'"))
    .values(state=bindparam("new_state"), closed_at=bindparam("now"))
)
_DEPART = Statement(
    text(
        "UPDATE changes SET state = 'intent', closed_at = NULL WHERE job_id = :job AND attempt = :of_attempt "
        "AND mode = 'move' AND sha256_after IS NULL AND state = 'void'"
    )
)
_SIZE = select(blobs.c.size, func.length(blobs.c.data)).where(blobs.c.sha256 == bindparam("hash"))
_HAS_BLOB = Statement(_SIZE)
# The lock keeps a prune from deleting content that a change is about to refer to.
_KEEP_BLOB = Statement(_SIZE.with_for_update(read=True, key_share=True))
_FILL_BLOB = Statement(
    update(blobs).where(blobs.c.sha256 == bindparam("hash")).values(data=bindparam("new_data"))
)
_BLOB = Statement(
    text(
        "INSERT INTO blobs (sha256, size, data, base) VALUES (:sha256, :size, :data, :base) "
        "ON CONFLICT (sha256) DO NOTHING"
    )
)
_CONTENT = Statement(
    text(
        "WITH RECURSIVE chain (base, data, depth) AS ("
        "SELECT base, data, 0 FROM blobs WHERE sha256 = :hash "
        "UNION ALL SELECT b.base, b.data, chain.depth + 1 FROM blobs b JOIN chain ON b.sha256 = chain.base"
        ") SELECT base, data FROM chain ORDER BY depth DESC"
    )
)
_APPENDED_TO = Statement(
    select(blobs.c.sha256, blobs.c.size)
    .join_from(changes, blobs, blobs.c.sha256 == changes.c.sha256_before)
    .where(changes.c.file == bindparam("file"), changes.c.sha256_after == bindparam("hash"))
    .where(text("changes.mode = 'append' AND length(blobs.data) > 0"))
    .with_for_update(read=True, key_share=True, of=blobs)
)
_Stored: TypeAlias = tuple[bytes, str | None]
"""What is stored of a content, and the hash of the content that it follows."""
MOST_WHOLE = 16 * 1024
"""Bytes; a smaller content is always stored whole."""
MOST_ASKED = 10_000
"""Hashes that one statement asks for: databases limit the params."""
_STAGED = Statement(
    text(
        "SELECT path, sha256_after FROM changes WHERE mission_id = :mission AND staged IS NOT NULL "
        "AND state = 'applied' ORDER BY id"
    )
)
_APPLIED = Statement(
    select(changes.c.id, changes.c.path, changes.c.sha256_after)
    .where(
        changes.c.mission_id == bindparam("mission"),
        text("state = 'applied'"),
        changes.c.undoes.is_(None),
        changes.c.staged.is_(None),
    )
    .order_by(changes.c.id)
)
_ENDED = Statement(
    select(missions.c.metrics).where(
        missions.c.id == bindparam("mission"), missions.c.deliverables.is_not(None)
    )
)
_DELIVER = Statement(
    update(missions)
    .where(missions.c.id == bindparam("mission"))
    .values(deliverables=bindparam("new_deliverables"), metrics=bindparam("new_metrics"))
)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def open_intents(tx: Tx, file: str, place: str | None) -> Sequence[ChangeRow]:
    """The open intents on a file of this place, whatever root they came through."""
    found = (ChangeRow(*row) for row in tx.rows(_OPEN, file=file))
    return [change for change in found if is_same_place(change.root_identity, place)]


def open_intents_of_mission(tx: Tx, mission_id: int) -> Sequence[ChangeRow]:
    """The open intents of a mission, oldest first."""
    return [ChangeRow(*row) for row in tx.rows(_OPEN_OF_MISSION, mission=mission_id)]


def left_open(tx: Tx) -> Sequence[ChangeRow]:
    """The open intents of jobs that no longer run, oldest first."""
    return [ChangeRow(*row) for row in tx.rows(_LEFT_OPEN)]


def changes_of(tx: Tx, job_id: int) -> Sequence[ChangeRow]:
    """The changes that a job intended, newest first."""
    return [ChangeRow(*row) for row in tx.rows(_OF_JOB, job=job_id)]


def applied_changes(tx: Tx, mission_id: int) -> Sequence[ChangeRow]:
    """The applied changes of a mission in its root, oldest first."""
    return [ChangeRow(*row) for row in tx.rows(_OF_MISSION, mission=mission_id)]


def changes_in_stage(tx: Tx, mission_id: int, path: str) -> Sequence[ChangeRow]:
    """The applied changes of a mission in its stage at `path`, oldest first."""
    return [ChangeRow(*row) for row in tx.rows(_IN_STAGE, mission=mission_id, root=path)]


def applied_changes_of_files(tx: Tx, mission_id: int) -> Sequence[ChangeRow]:
    """All applied changes, of any mission, of the files that a mission has intended to change, the oldest first."""
    return [ChangeRow(*row) for row in tx.rows(_APPLIED_OF_FILES, mission=mission_id)]


@dataclass(frozen=True)
class Brought:
    """A change of a job whose kind may bring what is in one file to another; `is_gone`: it removes the file."""

    id: int
    job_id: int
    path: str
    is_gone: bool
    kind: str
    params: JsonObject
    at: Micros


def brought_after(tx: Tx, mission_id: int, change_id: int) -> Sequence[Brought]:
    """Such changes of a mission that were recorded after that one, whatever became of them, the oldest first."""
    return [
        Brought(int(change), int(job), str(path), sha is None, str(kind), from_json(params), at)
        for change, job, path, sha, kind, params, at in tx.rows(_BROUGHT, mission=mission_id, after=change_id)
    ]


def params_of(tx: Tx, job_id: int) -> str:
    """The params of a change's job, in JSON."""
    row = tx.row(_PARAMS_OF, job=job_id)
    return "{}" if row is None else str(row[0])


def intend(tx: Tx, change: ChangeRow) -> int:
    """Record an intent; its id. The content that it will replace is stored already, or named.

    A void one is recorded closed: `arrive` opens it.
    """
    values = {name: getattr(change, name) for name in _NEW if not name.endswith("_at")}
    closed_at = None if change.state == "intent" else tx.now
    row = tx.row(_INTEND, **values, intended_at=tx.now, closed_at=closed_at)
    assert row is not None
    return int(row[0])


def keep(tx: Tx, sha: str, data: bytes, file: str | None = None) -> int:
    """Store a content once; how many bytes of it are stored, already or now.

    Of a content that an append to `file` has made only what was appended is stored.
    """
    made: list[bytes] = []

    def make() -> _Stored:
        base, start = _appended_to(tx, sha, file) if file and len(data) > MOST_WHOLE else (None, 0)
        made.append(zlib.compress(data[start:], 6))
        return made[-1], base

    known = _reserve(tx, sha, len(data), make)
    if known == 0:
        made.append(zlib.compress(data, 6))
        tx.run(_FILL_BLOB, hash=sha, new_data=made[-1])
    return known or len(made[-1])


def _appended_to(tx: Tx, sha: str, file: str) -> tuple[str | None, int]:
    """The hash and the size of the content that an append has made this one of, if it is stored."""
    row = tx.row(_APPENDED_TO, file=file, hash=sha)
    return (None, 0) if row is None else (str(row[0]), int(row[1]))


def name_unkept(tx: Tx, sha: str, size: int) -> None:
    """Name a content that is too large to store: its row has no bytes (compressed, even an empty content has some)."""
    _reserve(tx, sha, size, lambda: (b"", None))


def _reserve(tx: Tx, sha: str, size: int, make: Callable[[], _Stored]) -> int | None:
    """Make the row of a content, or lock the one that is there; how many bytes that one has stored.

    A row that another transaction made at the same moment is not locked by the attempt to make it.
    """
    while True:
        row = tx.row(_KEEP_BLOB, hash=sha)
        if row is not None:
            return int(row[1])
        data, base = make()
        if tx.run(_BLOB, sha256=sha, size=size, data=data, base=base) == 1:
            return None


def content(tx: Tx, sha: str) -> bytes | None:
    """A content that is stored; None if it is not."""
    parts = tx.rows(_CONTENT, hash=sha)
    if not parts or parts[0][0] is not None or not all(data for _, data in parts):
        return None
    return b"".join(zlib.decompress(data) for _, data in parts)


def kept_size(tx: Tx, sha: str) -> int | None:
    """The size of a content in bytes; None if it was too large to store."""
    row = tx.row(_HAS_BLOB, hash=sha)
    return int(row[0]) if row is not None and row[1] else None


def stored_bytes(tx: Tx, sha: str) -> int:
    """Number of stored bytes of a content, as `keep` counted them."""
    row = tx.row(_HAS_BLOB, hash=sha)
    return 0 if row is None else int(row[1])


def missing_blobs(tx: Tx, hashes: Sequence[str], *, keeps: bool = False) -> list[str]:
    """The `hashes` without stored contents, sorted. With `keeps`, no prune deletes the others before the commit."""
    asked, there = sorted(set(hashes)), set[str]()
    for start in range(0, len(asked), MOST_ASKED):
        clause = select(blobs.c.sha256).where(blobs.c.sha256.in_(asked[start : start + MOST_ASKED]))
        found = tx.query(clause.with_for_update(read=True, key_share=True) if keeps else clause)
        there.update(row[0] for row in found)
    return [sha for sha in asked if sha not in there]


def is_undone(tx: Tx, change: ChangeRow) -> bool:
    """True if an applied change was taken back, and that has not been taken back in turn."""
    return has_undone(tx, change.mission_id) and change.id in timeline_of(tx, change.mission_id).undone_by


def close_intent(tx: Tx, change_id: int, state: str) -> bool:
    """Mark an intent `applied`, `void` or `conflict`. False if it was closed already."""
    return tx.run(_CLOSE, change=change_id, new_state=state, now=tx.now) == 1


def arrive(tx: Tx, change: ChangeRow) -> bool:
    """Mark a change of a move applied: after the new file, the old one is to be removed. False if it was closed."""
    if not close_intent(tx, change.id, "applied"):
        return False
    if change.sha256_after is not None:
        tx.run(_DEPART, job=change.job_id, of_attempt=change.attempt)
    return True


def changed_paths(tx: Tx, mission_id: int) -> list[str]:
    """The paths that the mission changed, without undone changes, sorted."""
    return sorted(_last_hashes(tx, mission_id))


def written_paths(tx: Tx, mission_id: int) -> list[str]:
    """The paths of `changed_paths` where the mission left a file; a directory is none."""
    left = (path for path, sha in _last_hashes(tx, mission_id).items() if sha is not None)
    return sorted(path for path in left if not path.endswith("/"))


def staged_paths(tx: Tx, mission_id: int) -> list[str]:
    """The paths of the files that a mission left in its stage, sorted."""
    left = {str(path): sha for path, sha in tx.rows(_STAGED, mission=mission_id)}
    return sorted(path for path, sha in left.items() if sha is not None and not path.endswith("/"))


def _last_hashes(tx: Tx, mission_id: int) -> dict[str, str | None]:
    """Hash of what the mission left at each path; None if it deleted the file."""
    undone = timeline_of(tx, mission_id).undone_by if has_undone(tx, mission_id) else {}
    rows = tx.rows(_APPLIED, mission=mission_id)
    return {str(path): sha for change, path, sha in rows if change not in undone}


def deliver_again(tx: Tx, mission_id: int) -> None:
    """Recompute the deliverables of a mission that has ended."""
    row = tx.row(_ENDED, mission=mission_id)
    if row is None:
        return
    paths = written_paths(tx, mission_id)
    metrics = {**from_json(row[0] or "{}"), "files_written": len(paths)}
    tx.run(_DELIVER, mission=mission_id, new_deliverables=to_json(list(paths)), new_metrics=to_json(metrics))
