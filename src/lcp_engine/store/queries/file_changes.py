"""Read what a mission did to files, and what was undone since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.paths.change_history import Effect, Timeline, timeline
from lcp_engine.sandbox.root_identity import number_places
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx

_OF_FILES = Sql(
    "SELECT id, mission_id, job_id, file, undoes, coalesce(root_identity, (SELECT m.root_identity FROM missions m "
    "WHERE m.id = changes.mission_id AND m.root = changes.root)) FROM changes WHERE state = 'applied' "
    "AND file IN (SELECT file FROM changes WHERE mission_id = :mission) ORDER BY id",
    mission=int,
)
_LAST_UNDO = Sql(
    "SELECT max(id) FROM changes WHERE mission_id = :mission AND undoes IS NOT NULL", mission=int
)
_KEPT = Sql(
    "SELECT changes.id, changes.undoes, blobs.size, length(blobs.data) FROM changes "
    "LEFT JOIN blobs ON changes.sha256_before = blobs.sha256 WHERE changes.mission_id = :mission ORDER BY changes.id",
    mission=int,
)


def timeline_of(tx: Tx, mission_id: int) -> Timeline:
    """Changes that the files of a mission went through, by whatever mission."""
    return timeline(effects_of((Effect(*row[:5]), row[5]) for row in tx.rows(_OF_FILES, mission=mission_id)))


def effects_of(found: Iterable[tuple[Effect, str | None]]) -> list[Effect]:
    """Effects whose `file` is another one where the place of the change is another one: a path alone is not a file."""
    effects = [*found]
    numbers = number_places(place for _, place in effects)
    return [effect._replace(file=f"{numbers[place]}:{effect.file}") for effect, place in effects]


def has_undone(tx: Tx, mission_id: int) -> bool:
    """True if anything of the mission was ever taken back."""
    row = tx.row(_LAST_UNDO, mission=mission_id)
    return row is not None and row[0] is not None


def explained(
    tx: Tx, mission_id: int, found: Sequence[Mapping[str, JsonValue]]
) -> list[dict[str, JsonValue]]:
    """The changes of a mission with what they did, what they take back, and which job took them back."""
    undone_by = timeline_of(tx, mission_id).undone_by if has_undone(tx, mission_id) else {}
    moved = _moved(found)
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
                **moved.get(change_id, {}),
                "undoes": undoes,
                "undone_by": None if by is None else by.job_id,
            }
        )
    return explained_


def _moved(found: Sequence[Mapping[str, JsonValue]]) -> dict[int, dict[str, JsonValue]]:
    """Places that moved files came from or went to, by the change."""
    moves: dict[tuple[JsonValue, JsonValue], dict[str, Mapping[str, JsonValue]]] = {}
    for change in found:
        if change["mode"] == "move":
            side = "moved_to" if change["sha256_after"] is None else "moved_from"
            moves.setdefault((change["job_id"], change["attempt"]), {})[side] = change
    told: dict[int, dict[str, JsonValue]] = {}
    for sides in moves.values():
        if len(sides) == 2:
            old, new = sides["moved_to"], sides["moved_from"]
            told[int(str(old["id"]))] = {"moved_to": new["path"]}
            told[int(str(new["id"]))] = {"moved_from": old["path"]}
    return told


def what(before: object, after: object) -> str:
    """Word for what a change does to its file, from the hashes of its contents: None is not a file."""
    if after is None:
        return "removed"
    return "created" if before is None else "changed"
