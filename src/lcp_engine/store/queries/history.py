"""Read history through the views: missions, jobs, events, turns and changes as JSON objects.

No index lists all jobs of a mission, or those in a settled state: it would cost every job a page in every commit.
Instead the jobs of a mission are searched between its first and its last one, and the counters of missions tell how
many there are to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from lcp_engine.core.job_states import CREATIONS, SETTLED, Role, State
from lcp_engine.core.json_values import JsonObject, JsonValue, int_in, object_in
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.conditions import LIVE
from lcp_engine.store.db.sql import Param, Sql
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.file_changes import explained
from lcp_engine.store.queries.mission_spec import missing_mission, spec_and_root
from lcp_engine.store.queries.selection import Columns, Condition, among, equal, find

_MISSIONS = Columns(
    "mission_overview",
    ("id", "uid", "name", "goal", "root", "planner", "status", "outcome", "summary", "deliverables", "metrics", "error",
     "limits", "turns", "jobs", "unfulfilled", "tokens", "created_at", "started_at", "ended_at",
     "session_id", "user_id", "result", "target_file", "issues", "recommendations", "cost", "waits_for", "open",
     "assessment"),
)  # fmt: skip
_JOBS = Columns(
    "job_history",
    ("id", "mission_id", "turn", "parent_id", "name", "kind", "params", "auto_dispatch", "state", "reason", "priority",
     "attempt", "max_attempts", "run_after", "created_at", "started_at", "ended_at", "limited_by", "result", "error",
     "attempts"),
)  # fmt: skip
_TURNS = Columns(
    "turn_history",
    ("mission_id", "number", "turn", "job_id", "corrects", "last_turn", "prompt", "reply", "action", "errors",
     "warnings", "input_tokens", "output_tokens", "latency", "asked_at", "replied_at", "completions", "cost"),
)  # fmt: skip
_WARNINGS = Columns("turn_history", ("number", "turn", "job_id", "warnings"))
_CHANGES = Columns(
    "change_history",
    ("id", "mission_id", "job_id", "attempt", "root", "path", "mode", "state", "sha256_before", "sha256_after",
     "size_bytes", "intended_at", "closed_at"),
)  # fmt: skip
_EVENTS = Columns("event_history", ("mission_id", "seq", "job_id", "at", "event", "data"))
_STEPS = Sql(
    "SELECT jobs.id, plans.job_id FROM jobs JOIN plans ON plans.id = jobs.plan_id "
    "WHERE jobs.mission_id = :mission AND plans.job_id IS NOT NULL "
    f"AND (jobs.terms IS NOT NULL OR (jobs.role = '{Role.TURN}' AND jobs.parent_id IS NULL))",
    mission=int,
)


LARGEST = 2**63 - 1
"""The largest number that a column holds; no row has it."""


def known_id(thing: str, number: int) -> int:
    """`number`, if a row can have it as its id. Raises `NOT_FOUND`."""
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
        raise missing_mission(mission_id)
    return found[0]


def find_missions(
    tx: Tx, limit: int | None, schedule: str | None, session: str | None, before: int | None
) -> list[JsonObject]:
    """Missions, the newest first; with `schedule` those that it launched, with `session` those of its requests."""
    where = [Condition("id < :before", {"before": LARGEST if before is None else in_column(before)})]
    where += [
        Condition(f"id IN (SELECT id FROM missions WHERE {column} = :{column})", {column: wanted})
        for column, wanted in (("schedule", schedule), ("session_id", session))
        if wanted is not None
    ]
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
    return {row[0]: row[1] for row in find(tx, "SELECT id, events FROM missions")}


def find_turns(tx: Tx, mission_id: int, *, job_id: int | None = None) -> list[JsonObject]:
    where = [_of(mission_id)]
    if job_id is not None:
        where.append(equal("job_id", in_column(job_id)))
    return with_records(tx, mission_id, _TURNS.read(tx, *where, order="number"))


_REPLIED = Columns("event_history", ("job_id", "data"))
_OF_PROMPT = ("context_tokens", "left_out")


def with_records(tx: Tx, mission_id: int, turns: Sequence[JsonObject]) -> list[JsonObject]:
    """Turns with the size of the model's context and what their prompts left out; None where that is not known."""
    where = [_of(mission_id), among("event", ["replied", "held_again"])]
    if len(turns) == 1:
        where.append(equal("job_id", int_in(turns[0]["job_id"])))
    of_question: dict[JsonValue, JsonObject] = {}
    of_held: dict[JsonValue, JsonObject] = {}
    for row in _REPLIED.read(tx, *where, order="seq") if turns else ():
        data = object_in(row["data"])
        if "question" in data:
            of_question[data["question"]] = object_in(data.get("prompt"))
        else:  # a person is asked for the reply
            of_held[row["job_id"]] = object_in(object_in(data.get("about")).get("prompt"))
    found = ((turn, of_question.get(turn["number"]) or of_held.get(turn["job_id"], {})) for turn in turns)
    return [{**turn, **{key: record.get(key) for key in _OF_PROMPT}} for turn, record in found]


def find_warnings(tx: Tx, mission_id: int) -> list[JsonObject]:
    """The questions whose replies held something that was ignored."""
    return _WARNINGS.read(tx, _of(in_column(mission_id)), Condition("warnings IS NOT NULL"), order="number")


def find_steps(tx: Tx, mission_id: int) -> dict[int, int]:
    """The job that stands for the plan of each later turn of a sub-plan, and of each step of a planner's plan."""
    return {row[0]: row[1] for row in tx.rows(_STEPS, mission=in_column(mission_id))}


def find_changes(tx: Tx, mission_id: int) -> list[JsonObject]:
    """The mission's file effects in its root, in order, with their outcomes; what it did in a stage is left out."""
    known = in_column(mission_id)
    return explained(tx, known, _CHANGES.read(tx, _of(known), Condition("staged IS NULL")))


def _of(mission_id: int) -> Condition:
    return equal("mission_id", in_column(mission_id))


def _most(limit: int | None) -> int | None:
    return None if limit is None else in_column(limit)


_CREATED = f"event IN ({', '.join(repr(made.event) for made in CREATIONS.values())})"
_OF_MISSION = "SELECT job_id FROM events WHERE mission_id = :mission AND job_id IS NOT NULL"
_FIRST = f"{_OF_MISSION} ORDER BY seq LIMIT 1"
_LAST = f"{_OF_MISSION} AND {_CREATED} ORDER BY seq DESC LIMIT 1"

_WITHIN = "mission_id = :mission AND id BETWEEN :first AND :last"


@dataclass(frozen=True)
class Where:
    """Jobs that are looked for: how many there are, and what holds for their `id`, `mission_id` and `state`."""

    count: int
    conditions: tuple[Condition, ...]
    is_cut: bool = False
    """Whether the conditions leave older jobs of a large mission aside, which `count` counts."""


def find_where(
    tx: Tx, mission_id: int | None, states: Sequence[str] = (), *, newest: int | None = None
) -> Where:
    """The conditions for jobs in some states, of one mission or all; no states are all states.

    With `newest`, jobs of a mission that have ended are among so many of its newest ids.
    """
    named = tuple(sorted(State(state).value for state in states))
    are_live = bool(named) and not any(State(state) in SETTLED for state in named)
    mission: dict[str, Param] = {} if mission_id is None else {"mission": mission_id}
    ((count, *span),) = tx.rows(_look(named, bool(mission), bool(mission) and not are_live), **mission)
    if are_live:  # by their index: for the order of the ids, SQLite would rather walk through all there are
        of_mission = " AND mission_id = :mission" if mission else ""
        live = f"id IN (SELECT id FROM jobs WHERE {LIVE} AND {_in(named)}{of_mission})"
        return Where(int(count), (Condition(live, mission),))
    conditions = [Condition(_in(named))] if named else []
    if span:
        first, last = span[0] or 1, span[1] or 0
        beyond = first if newest is None else max(first, last - newest + 1)
        conditions.append(Condition(_WITHIN, {**mission, "first": beyond, "last": last}))
        return Where(int(count), tuple(conditions), is_cut=beyond > first)
    return Where(int(count), tuple(conditions))


def _in(states: tuple[str, ...]) -> str:
    return f"state = '{states[0]}'" if len(states) == 1 else f"state IN ({', '.join(map(repr, states))})"


@cache
def _look(states: tuple[str, ...], has_mission: bool, has_span: bool) -> Sql:
    """Counts the jobs in some states, and finds the ids of the first and the last job of a mission."""
    counted = " + ".join(f"coalesce(sum({state}), 0)" for state in states or tuple(State))
    of_mission = " WHERE id = :mission" if has_mission else ""
    span = f", ({_FIRST}), ({_LAST})" if has_span else ""
    sql = f"SELECT {counted}{span} FROM missions{of_mission}"
    return Sql(sql, mission=int) if has_mission else Sql(sql)
