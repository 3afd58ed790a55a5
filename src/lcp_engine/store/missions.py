"""Store missions and plans: create, find, reopen, end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from sqlalchemy import bindparam, null, select, text, update

from lcp_engine.core.json_values import JsonValue
from lcp_engine.sandbox.root_identity import KnownRoot
from lcp_engine.store.conditions import IS_OVER, OPEN_SUB_PLAN
from lcp_engine.store.db.json_text import JsonObject, from_json, to_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import changes, events, missions, plans


@dataclass(frozen=True, kw_only=True)
class NewMission:
    """A mission to create; `spec` is its spec as JSON."""

    uid: str
    key: str | None
    name: str
    goal: str
    root: str | None
    root_identity: str | None
    planner: str
    spec: str
    session_id: str | None
    user_id: str | None


_COLUMNS = (*(field.name for field in fields(NewMission)), "status", "created_at")
# Of two launches with one key, or for one request, at the same moment the database lets one in.
_INSERT = Statement(
    text(
        f"INSERT INTO missions ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)}) "
        "ON CONFLICT DO NOTHING RETURNING id"
    )
)
_BY_KEY = Statement(select(missions.c.id).where(missions.c.key == bindparam("wanted")))
_BY_UID = Statement(select(missions.c.id).where(missions.c.uid == bindparam("wanted")))
_OPEN_BY_KEY = Statement(
    select(missions.c.id).where(missions.c.key == bindparam("wanted"), text("ended_at IS NULL"))
)
_RELEASE_KEY = Statement(
    update(missions)
    .where(missions.c.key == bindparam("wanted"), text("ended_at IS NOT NULL"))
    .values(key=null())
)
_FOUND = ("result", "target_file", "issues", "recommendations", "assessment")
_REOPEN = Statement(
    update(missions)
    .where(missions.c.id == bindparam("mission"))
    .values(ended_at=null(), error=null(), summary=null(), **{name: null() for name in _FOUND})
)
_MOVE_ROOT = Statement(
    update(missions)
    .where(missions.c.id == bindparam("mission"))
    .values(root=bindparam("new_root"), root_identity=bindparam("identity"))
)
_MOVE_CHANGES = Statement(
    update(changes)
    .where(changes.c.mission_id == bindparam("mission"), changes.c.root == bindparam("old_root"))
    .values(
        root=bindparam("new_root"),
        file=bindparam("beneath") + changes.c.path,
        root_identity=bindparam("identity"),
    )
)
_IS_OVER = Statement(text(f"SELECT 1 FROM missions m WHERE m.id = :mission AND {IS_OVER}"))
_STATUS = Statement(text("SELECT status FROM missions WHERE id = :mission"))
_UID = Statement(text("SELECT uid FROM missions WHERE id = :mission"))
_END = Statement(
    update(missions)
    .where(missions.c.id == bindparam("mission"))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("summary", "deliverables", "metrics", "error", "ended_at", *_FOUND)
        }
    )
)
_SUB_PLANS = Statement(
    select(plans.c.id)
    .where(text(OPEN_SUB_PLAN), plans.c.mission_id == bindparam("mission"))
    .order_by(plans.c.id)
)
_PLAN_OF_JOB = Statement(
    select(plans.c.id).where(plans.c.mission_id == bindparam("mission"), plans.c.job_id == bindparam("job"))
)
_HAPPENED = Statement(
    select(events.c.seq).where(
        events.c.mission_id == bindparam("mission"), events.c.event == bindparam("event")
    )
)
_EVENT_DATA = Statement(
    select(events.c.data)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(events.c.event == bindparam("event"))
    .order_by(events.c.seq.desc())
)


def insert_mission(tx: Tx, new: NewMission) -> int:
    """Create a mission; its id, or that of the mission that has its key or its uid."""
    row = tx.row(_INSERT, **vars(new), status="running", created_at=tx.now)
    if row is not None:
        return int(row[0])
    known = None if new.key is None else find_by_key(tx, new.key)
    known = find_by_uid(tx, new.uid) if known is None else known
    assert known is not None
    return known


def find_by_key(tx: Tx, key: str) -> int | None:
    """The mission that was launched with a key."""
    row = tx.row(_BY_KEY, wanted=key)
    return None if row is None else int(row[0])


def find_by_uid(tx: Tx, uid: str) -> int | None:
    """The mission that has a uid, which is that of its request."""
    row = tx.row(_BY_UID, wanted=uid)
    return None if row is None else int(row[0])


def find_open_by_key(tx: Tx, key: str) -> int | None:
    """Like `find_by_key`, unless the mission has ended."""
    row = tx.row(_OPEN_BY_KEY, wanted=key)
    return None if row is None else int(row[0])


def release_key(tx: Tx, key: str) -> None:
    """Take the key from a mission that has ended, so that another one can have it."""
    tx.send(_RELEASE_KEY, wanted=key)


def reopen_mission(tx: Tx, mission_id: int) -> None:
    """Remove what the end of a mission has stored; its counters and status are the ledger's."""
    tx.run(_REOPEN, mission=mission_id)


def move_root(tx: Tx, old: str, new: KnownRoot) -> None:
    """Let a mission work in another root, where its changes are then searched for, too."""
    identity = None if new.identity is None else new.identity.text
    tx.run(_MOVE_ROOT, mission=new.mission_id, new_root=new.path, identity=identity)
    beneath = f"{new.path.rstrip('/')}/"
    tx.run(
        _MOVE_CHANGES,
        mission=new.mission_id,
        old_root=old,
        new_root=new.path,
        beneath=beneath,
        identity=identity,
    )


@dataclass(frozen=True)
class Findings:
    """Findings of the reply that completed a mission, beside its summary; all but `target_file` as JSON."""

    result: str | None = None
    target_file: str | None = None
    issues: str | None = None
    recommendations: str | None = None
    assessment: str | None = None


NOTHING_FOUND = Findings()
MOST_LISTED = 64 * 1024
"""Characters of a list of findings, as JSON; the whole list is in the reply."""


def findings_in(said: JsonObject) -> Findings:
    """The findings of an action. Of a long list the first entries are kept, and how many there are beyond."""
    result, target, assessment = said.get("result"), said.get("target_file"), said.get("assessment")
    return Findings(
        result=None if result is None else to_json(result),
        target_file=target if isinstance(target, str) else None,
        issues=_listed(said.get("issues")),
        recommendations=_listed(said.get("recommendations")),
        assessment=None if not isinstance(assessment, dict) else to_json(assessment),
    )


def _listed(entries: JsonValue) -> str | None:
    if not isinstance(entries, list):
        return None
    left, kept = MOST_LISTED, list[JsonValue]()
    for entry in entries:
        left -= len(to_json(entry)) + 1
        if left < 0:
            kept.append(f"<{len(entries) - len(kept):,} more in the reply>")
            break
        kept.append(entry)
    return to_json(kept)


def end_mission(
    tx: Tx, mission_id: int, *, summary: str | None, deliverables: Sequence[str], metrics: JsonObject,
    error: str | None, findings: Findings = NOTHING_FOUND,
) -> None:  # fmt: skip
    """Store what a mission has ended with; `error` is an `AgentError` as JSON."""
    tx.run(
        _END,
        mission=mission_id,
        new_summary=summary,
        new_deliverables=to_json(list(deliverables)),
        new_metrics=to_json(metrics),
        new_error=error,
        new_ended_at=tx.now,
        **{f"new_{name}": found for name, found in vars(findings).items()},
    )


def open_sub_plans(tx: Tx, mission_id: int) -> list[int]:
    """Plans below the mission's own that have not ended, oldest first."""
    return [int(row[0]) for row in tx.rows(_SUB_PLANS, mission=mission_id)]


def find_plan_of(tx: Tx, mission_id: int, job_id: int) -> int | None:
    """The plan that a job has begun."""
    row = tx.row(_PLAN_OF_JOB, mission=mission_id, job=job_id)
    return None if row is None else int(row[0])


def has_event_of(tx: Tx, mission_id: int, event: str) -> bool:
    """True if something of that name has happened in the mission."""
    return tx.row(_HAPPENED, mission=mission_id, event=event) is not None


def event_data(tx: Tx, mission_id: int, job_id: int, event: str) -> JsonObject:
    """The data of a job's last event of that name; empty if there is none."""
    row = tx.row(_EVENT_DATA, mission=mission_id, job=job_id, event=event)
    return {} if row is None or row[0] is None else from_json(row[0])


def status_of(tx: Tx, mission_id: int) -> str | None:
    """The status of a mission; None for one that is not in the database."""
    row = tx.row(_STATUS, mission=mission_id)
    return None if row is None else str(row[0])


def uid_of(tx: Tx, mission_id: int) -> str | None:
    """The name of a mission that no other one has in any database; None for one that is not in this."""
    row = tx.row(_UID, mission=mission_id)
    return None if row is None else str(row[0])


def is_over(tx: Tx, mission_id: int) -> bool:
    """True if a mission has ended and nothing of it is still to be decided or carried out."""
    return tx.row(_IS_OVER, mission=mission_id) is not None
