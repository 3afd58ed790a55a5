"""Read history through the views: missions, jobs, events, turns, changes as JSON objects (CONTRACT.md)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from lcp_engine.core.job_states import Role
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import spec_and_root
from lcp_engine.store.queries.change_history import explained
from lcp_engine.store.queries.job_search import find_where
from lcp_engine.store.queries.view_reader import Columns, Condition, among, equal
from lcp_engine.store.schema import jobs, missions, plans

_MISSIONS = Columns(
    "mission_overview",
    ("id", "uid", "name", "goal", "root", "planner", "status", "outcome", "summary", "deliverables", "metrics", "error",
     "limits", "turns", "jobs", "tokens", "created_at", "started_at", "ended_at"),
)  # fmt: skip
_JOBS = Columns(
    "job_history",
    ("id", "mission_id", "turn", "parent_id", "name", "kind", "params", "auto_dispatch", "state", "reason", "priority",
     "attempt", "max_attempts", "run_after", "created_at", "started_at", "ended_at", "result", "error", "attempts"),
)  # fmt: skip
_TURNS = Columns(
    "turn_history",
    ("mission_id", "number", "turn", "job_id", "corrects", "last_turn", "prompt", "reply", "action", "errors",
     "input_tokens", "output_tokens", "latency", "asked_at", "replied_at"),
)  # fmt: skip
_CHANGES = Columns(
    "change_history",
    ("id", "mission_id", "job_id", "attempt", "root", "path", "mode", "state", "sha256_before", "sha256_after",
     "size_bytes", "intended_at", "closed_at"),
)  # fmt: skip
_EVENTS = Columns("event_history", ("mission_id", "seq", "job_id", "at", "event", "data"))


LARGEST = 2**63 - 1
"""The largest number that a column holds; no row has it."""


def known_id(thing: str, number: int) -> int:
    """`number`, where a row may have it as its id. Raises `NOT_FOUND`."""
    if not 0 < number < LARGEST:
        raise LcpError(ErrorCode.NOT_FOUND, f"{thing} {number} is not in the database")
    return number


def in_column(number: int) -> int:
    """The nearest number that a column holds."""
    return max(-LARGEST, min(number, LARGEST))


def find_mission(tx: Tx, mission_id: int) -> JsonObject:
    """The mission. Raises `NOT_FOUND`."""
    found = _MISSIONS.read(tx, equal("id", known_id("mission", mission_id)))
    if not found:
        spec_and_root(tx, mission_id)
        raise LcpError(ErrorCode.NOT_FOUND, f"mission {mission_id} is not in the database")
    return found[0]


def find_missions(tx: Tx, *, limit: int | None = None, schedule: str | None = None) -> list[JsonObject]:
    """Missions, the newest first; with `schedule` those that a schedule of that name launched."""
    launched = "id IN (SELECT id FROM missions WHERE schedule = :schedule)"
    where = () if schedule is None else (Condition(launched, {"schedule": schedule}),)
    return _MISSIONS.read(tx, *where, newest_first=True, limit=_most(limit))


def find_job(tx: Tx, job_id: int) -> JsonObject:
    """The job. Raises `NOT_FOUND`."""
    found = _JOBS.read(tx, equal("id", known_id("job", job_id)))
    if not found:
        raise LcpError(ErrorCode.NOT_FOUND, f"job {job_id} is not in the database")
    return found[0]


def find_jobs(
    tx: Tx,
    *,
    mission_id: int | None = None,
    states: Sequence[str] = (),
    kinds: Sequence[str] = (),
    limit: int | None = None,
    newest_first: bool = False,
) -> list[JsonObject]:
    """Jobs that fit every filter, in the order of their ids."""
    where = find_where(tx, None if mission_id is None else in_column(mission_id), states)
    if not where.count:
        return []
    conditions = (*where.conditions, among("kind", kinds)) if kinds else where.conditions
    most = where.count if limit is None else min(in_column(limit), where.count)
    return _JOBS.read(tx, *conditions, newest_first=newest_first, limit=most)


def find_events(
    tx: Tx,
    mission_id: int,
    *,
    after_seq: int = 0,
    job_id: int | None = None,
    event: str | None = None,
    limit: int | None = None,
) -> list[JsonObject]:
    """The mission's events after one, in order; with `event` only those of that name."""
    where = [_of(mission_id), Condition("seq > :after", {"after": in_column(after_seq)})]
    if job_id is not None:
        where.append(equal("job_id", in_column(job_id)))
    if event is not None:
        where.append(equal("event", event))
    return _EVENTS.read(tx, *where, order="seq", limit=_most(limit))


def count_events(tx: Tx) -> dict[int, int]:
    """The number of the last event of every mission, by the mission's id."""
    return {row[0]: row[1] for row in tx.query(select(missions.c.id, missions.c.events))}


def find_turns(tx: Tx, mission_id: int, *, job_id: int | None = None) -> list[JsonObject]:
    where = [_of(mission_id)]
    if job_id is not None:
        where.append(equal("job_id", in_column(job_id)))
    return _TURNS.read(tx, *where, order="number")


def find_steps(tx: Tx, mission_id: int) -> dict[int, int]:
    """The job that began the sub-plan of each later turn of one, by the turn's job."""
    clause = select(jobs.c.id, plans.c.job_id).join(plans, plans.c.id == jobs.c.plan_id)
    of_mission = (jobs.c.mission_id == in_column(mission_id), jobs.c.role == Role.TURN.value)
    return {row[0]: row[1] for row in tx.query(clause.where(*of_mission, plans.c.job_id.is_not(None)))}


def find_changes(tx: Tx, mission_id: int) -> list[JsonObject]:
    """The mission's file effects in order, with what became of them."""
    known = in_column(mission_id)
    return explained(tx, known, _CHANGES.read(tx, _of(known)))


def _of(mission_id: int) -> Condition:
    return equal("mission_id", in_column(mission_id))


def _most(limit: int | None) -> int | None:
    return None if limit is None else in_column(limit)
