"""Read how long held jobs wait, for what, and who has seen them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from lcp_engine.clock import Micros, iso
from lcp_engine.core.json_values import list_in, object_in
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.selection import Condition, find, with_ids

NO_PERSON = ""
"""The person of the review that is made when a job is held."""
_AT_ONCE = 500
_EXPIRING = Sql("SELECT id, held_until FROM jobs WHERE state = 'held' AND held_until IS NOT NULL")
_AWAITED = Sql(
    "SELECT jobs.id FROM jobs JOIN missions ON missions.id = jobs.mission_id "
    "WHERE state = 'held' AND missions.asking = jobs.id AND jobs.role <> 'work'"
)
_SELECT_MISSIONS = (
    "SELECT id, ended_at IS NOT NULL, root_plan IS NOT NULL AND planner <> 'none' FROM missions"
)
_TIME = Sql("SELECT at FROM events WHERE mission_id = :mission AND seq = :seq", mission=int, seq=int)


def time_of_event(tx: Tx, mission_id: int, seq: int) -> Micros:
    """When an event of a mission happened."""
    ((at,),) = tx.rows(_TIME, mission=mission_id, seq=seq)
    return int(at)


def find_expiries(tx: Tx) -> dict[int, str]:
    """When each held job that expires does, as ISO 8601."""
    return {row[0]: iso(row[1]) for row in tx.rows(_EXPIRING)}


def find_awaited_replies(tx: Tx) -> frozenset[int]:
    """Held turns that wait for a person to bring the planner's reply."""
    return frozenset(row[0] for row in tx.rows(_AWAITED))


def have_ended(tx: Tx, mission_ids: Collection[int]) -> frozenset[int]:
    """Those of these missions that have ended."""
    has_ended = Condition("ended_at IS NOT NULL")
    return frozenset(row[0] for row in find(tx, "SELECT id FROM missions", with_ids(mission_ids), has_ended))


def are_heard(tx: Tx, mission_ids: Collection[int]) -> dict[int, tuple[bool, bool]]:
    """By the id of each of these missions, whether it has ended, and whether a planner would read a message to it."""
    found = find(tx, _SELECT_MISSIONS, with_ids(mission_ids))
    return {
        int(id_): (bool(has_ended), bool(has_planner) and not has_ended)
        for id_, has_ended, has_planner in found
    }


def ask_several(tx: Tx, mission_ids: Collection[int]) -> bool:
    """True if a rule of one of these missions asks for other approvals than that of any one person."""
    specs = find(tx, "SELECT spec FROM missions", with_ids(mission_ids))
    rules = (object_in(rule) for (spec,) in specs for rule in list_in(json.loads(spec).get("policy") or []))
    return any(rule.get("approvals") not in (None, 1) or rule.get("not_requester") for rule in rules)


def met(tx: Tx, job_ids: Sequence[int], person: str) -> set[int]:
    """Which of these jobs the person has seen, or were recorded when they were held."""
    found: set[int] = set()
    by_whom = Condition("person IN (:who, :no_person)", {"who": person, "no_person": NO_PERSON})
    for start in range(0, len(job_ids), _AT_ONCE):
        some = with_ids(job_ids[start : start + _AT_ONCE], "job_id")
        found.update(row[0] for row in find(tx, "SELECT job_id FROM reviews", some, by_whom))
    return found
