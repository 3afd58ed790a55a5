"""Read the spec and the root of a mission, or say why it has none."""

from __future__ import annotations

import json
from dataclasses import replace

from lcp_engine.clock import Micros, iso
from lcp_engine.core.json_values import JsonObject, object_in
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.root_identity import KnownRoot, RootIdentity
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx

_SPEC = Sql("SELECT spec, root, pruned_at FROM missions WHERE id = :id", id=int)

_ROOT = Sql("SELECT root, root_identity FROM missions WHERE id = :id", id=int)
# id + 0: for a mission without changes PostgreSQL would go through all of them in the order of ids.
_LAST_PLACE = Sql(
    "SELECT root_identity FROM changes WHERE mission_id = :mission AND root = :root AND root_identity IS NOT NULL "
    "ORDER BY id + 0 DESC LIMIT 1",
    mission=int,
    root=str,
)

_STAGE = Sql("SELECT path, root_identity, machine FROM stages WHERE mission_id = :id", id=int)
_ASKED = Sql(
    "SELECT t.plan_id = m.root_plan, j.params FROM missions m JOIN turns t ON t.job_id = m.asking "
    "JOIN jobs j ON j.id = m.asking WHERE m.id = :id",
    id=int,
)


def spec_and_root(tx: Tx, mission_id: int) -> tuple[str, str | None]:
    """A mission's spec as text and its root, read without a lock. Raises `NOT_FOUND`."""
    row = tx.row(_SPEC, id=mission_id)
    if row is None:
        raise missing_mission(mission_id)
    if row[2] is not None:
        raise was_pruned(mission_id, row[2])
    return row[0], row[1]


def kind_settings(tx: Tx, mission_id: int) -> dict[str, JsonObject]:
    """Settings of a mission for kinds of jobs, by the kind; only what it states. Raises `NOT_FOUND`."""
    spec, _ = spec_and_root(tx, mission_id)
    stated = object_in(json.loads(spec).get("kinds") or {})
    return {kind: _stated(object_in(settings)) for kind, settings in stated.items()}


def stage_place(tx: Tx, mission_id: int) -> JsonObject | None:
    """Where the stage of a mission is; None for one that works in its root. Raises `NOT_FOUND`."""
    spec, _ = spec_and_root(tx, mission_id)
    if not json.loads(spec).get("stage"):
        return None
    row = tx.row(_STAGE, id=mission_id)
    path, _, machine = (None, None, None) if row is None else row
    return {"path": path, "machine": machine}


def _stated(value: JsonObject) -> JsonObject:
    """A mapping without what is null or empty."""
    plain = {key: _stated(inner) if isinstance(inner, dict) else inner for key, inner in value.items()}
    return {key: inner for key, inner in plain.items() if inner is not None and inner != {}}


def asked_turn(tx: Tx, mission_id: int) -> tuple[bool, str] | None:
    """Whether the question that is asked now is one of the mission's own plan, and the params of its turn."""
    row = tx.row(_ASKED, id=mission_id)
    return None if row is None else (bool(row[0]), row[1])


def known_root(tx: Tx, mission_id: int) -> KnownRoot | None:
    """A mission's root, and which directory it was; None if the mission has none, or is not in the database."""
    row = tx.row(_ROOT, id=mission_id)
    if row is None or row[0] is None:
        return None
    return KnownRoot(mission_id, row[0], None if row[1] is None else RootIdentity.read(row[1]))


def changed_root(tx: Tx, mission_id: int) -> KnownRoot | None:
    """Like `known_root`; if the mission has changed files there, it is opened on their machine only."""
    known = known_root(tx, mission_id)
    return known if known is None else replace(known, changed=last_place(tx, mission_id, known.path))


def working_root(tx: Tx, mission_id: int) -> KnownRoot | None:
    """Where the jobs of a mission work: in its stage if it has one, else in its root, like `changed_root`."""
    row = tx.row(_STAGE, id=mission_id)
    if row is None:
        return changed_root(tx, mission_id)
    return KnownRoot(mission_id, row[0], RootIdentity.read(row[1]))


def last_place(tx: Tx, mission_id: int, root: str) -> RootIdentity | None:
    """Which directory `root` was when the mission last changed a file in it; None if that is not known."""
    row = tx.row(_LAST_PLACE, mission=mission_id, root=root)
    return None if row is None else RootIdentity.read(row[0])


def root_of_change(tx: Tx, mission_id: int, path: str, place: str | None) -> KnownRoot:
    """The root of a mission's change at `path`, which is that of the mission or an earlier one, in `place`."""
    known = known_root(tx, mission_id)
    changed = None if place is None else RootIdentity.read(place)
    if known is None or known.path != path:
        return KnownRoot(mission_id, path, None, changed)
    return replace(known, changed=changed)


def missing_mission(mission_id: int) -> LcpError:
    """The error for a mission that is not in the database."""
    return LcpError(ErrorCode.NOT_FOUND, f"mission {mission_id} is not in the database")


def was_pruned(mission_id: int, at: Micros) -> LcpError:
    """The error for a mission that was pruned."""
    gone = "its history, and the contents that an undo would need, are gone"
    message = f"mission {mission_id} was pruned at {iso(at)}; {gone}"
    return LcpError(ErrorCode.NOT_FOUND, message, advice="Look into a backup from before that.")
