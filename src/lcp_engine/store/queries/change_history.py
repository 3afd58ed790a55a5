"""Read what files went through: which changes stand, which were taken back and by whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue
from sqlalchemy import bindparam, func, select, text

from lcp_engine.core.change_history import Effect, Timeline, timeline
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.schema import blobs, changes

_EFFECT = select(changes.c.id, changes.c.mission_id, changes.c.job_id, changes.c.file, changes.c.undoes)
_OF_FILES = Statement(
    _EFFECT.where(
        text("state = 'applied'"),
        changes.c.file.in_(select(changes.c.file).where(changes.c.mission_id == bindparam("mission"))),
    ).order_by(changes.c.id)
)
_LAST_UNDO = Statement(
    select(func.max(changes.c.id)).where(
        changes.c.mission_id == bindparam("mission"), changes.c.undoes.is_not(None)
    )
)
_KEPT = Statement(
    select(changes.c.id, changes.c.undoes, blobs.c.size, func.length(blobs.c.data))
    .join_from(changes, blobs, changes.c.sha256_before == blobs.c.sha256, isouter=True)
    .where(changes.c.mission_id == bindparam("mission"))
    .order_by(changes.c.id)
)


def timeline_of(tx: Tx, mission_id: int) -> Timeline:
    """What the files of a mission went through, by whatever mission."""
    return timeline(Effect(*row) for row in tx.rows(_OF_FILES, mission=mission_id))


def has_undone(tx: Tx, mission_id: int) -> bool:
    """Whether anything of the mission was ever taken back."""
    row = tx.row(_LAST_UNDO, mission=mission_id)
    return row is not None and row[0] is not None


def explained(
    tx: Tx, mission_id: int, found: Sequence[Mapping[str, JsonValue]]
) -> list[dict[str, JsonValue]]:
    """The changes of a mission with what they did, what they take back, and which job took them back."""
    undone_by = timeline_of(tx, mission_id).undone_by if has_undone(tx, mission_id) else {}
    kept = {row[0]: tuple(row[1:]) for row in tx.rows(_KEPT, mission=mission_id)}
    explained_: list[dict[str, JsonValue]] = []
    for change in found:
        change_id = int(str(change["id"]))
        undoes, size_before, stored = kept.get(change_id, (None, None, None))
        by = undone_by.get(change_id)
        explained_.append(
            {
                **change,
                "change": what(change["sha256_before"], change["sha256_after"]),
                "size_before": size_before,
                "has_pre_image": change["sha256_before"] is None or bool(stored),
                "undoes": undoes,
                "undone_by": None if by is None else by.job_id,
            }
        )
    return explained_


def what(before: object, after: object) -> str:
    """What a change does to its file, from the hashes of its contents: None is no file."""
    if after is None:
        return "removed"
    return "created" if before is None else "changed"
