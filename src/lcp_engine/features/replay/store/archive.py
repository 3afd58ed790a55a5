"""Read everything that is stored of a mission, so that it can be replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from sqlalchemy import Select, Table, select

from lcp_engine.core.job_states import Role
from lcp_engine.features.plans.store.stated_plans import StatedText, stated_plans_of
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.large_results import RESULT
from lcp_engine.store.queries.mission_spec import spec_and_root
from lcp_engine.store.row_types import ChangeRow
from lcp_engine.store.schema import attempts, changes, events, jobs, missions, runners, turns


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job in its last state."""

    id: int
    plan_id: int | None
    turn: int | None
    parent_id: int | None
    name: str | None
    kind: str
    params: str
    role: Role
    state: str
    reason: str | None
    priority: int
    fingerprint: str | None
    max_attempts: int
    run_after: int | None
    terms: str | None
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A question with its reply."""

    number: int
    turn: int
    job_id: int
    last_turn: str | None
    reply: str | None
    prompt: str | None
    input_tokens: int | None
    output_tokens: int | None
    latency: float | None
    replied_at: int | None
    memories: str | None
    completions: str | None
    cost: str | None
    currency: str | None
    action: str | None
    errors: str | None
    """How the reply was read: its action, or what was wrong with it."""


@dataclass(frozen=True, slots=True)
class PastEvent:
    """An event; `data` may be empty."""

    seq: int
    job_id: int | None
    at: int
    event: str
    data: JsonObject


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that ended; `alive_until` is its runner's last sign of life."""

    job_id: int
    attempt: int
    error: str | None
    input_tokens: int | None
    output_tokens: int | None
    alive_until: int | None


@dataclass(frozen=True)
class Archive:
    """A mission with all its rows: jobs by id, events by number, turns by question, changes as they were intended."""

    id: int
    name: str
    spec: str
    root: str | None
    status: str
    outcome: str | None
    summary: str | None
    jobs: Sequence[PastJob]
    events: Sequence[PastEvent]
    turns: Mapping[int, PastTurn]
    changes: Sequence[ChangeRow]
    attempts: Mapping[tuple[int, int], PastAttempt]
    plans: Sequence[StatedText]


def read_archive(tx: Tx, mission_id: int) -> Archive:
    """All of a mission. Raises `NOT_FOUND`."""
    spec_and_root(tx, mission_id)
    head = select(
        missions.c.name,
        missions.c.spec,
        missions.c.root,
        missions.c.status,
        missions.c.outcome,
        missions.c.summary,
    )
    name, spec, root, status, outcome, summary = tx.query(head.where(missions.c.id == mission_id))[0]
    found_turns = _all(tx, PastTurn, turns, mission_id, "number")
    return Archive(
        id=mission_id,
        name=name,
        spec=spec,
        root=root,
        status=status,
        outcome=outcome,
        summary=summary,
        jobs=[replace(job, role=Role(job.role)) for job in _all(tx, PastJob, jobs, mission_id, "id")],
        events=_events(tx, mission_id),
        turns={turn.number: turn for turn in found_turns},
        changes=_all(tx, ChangeRow, changes, mission_id, "id"),
        attempts=_attempts(tx, mission_id),
        plans=stated_plans_of(tx, mission_id),
    )


R = TypeVar("R", PastJob, PastTurn, ChangeRow)


def _all(tx: Tx, record: type[R], table: Table, mission_id: int, order: str) -> list[R]:
    columns = [table.c[field.name] for field in fields(record)]
    clause: Select[*tuple[object, ...]] = select(*(RESULT if it is jobs.c.result else it for it in columns))
    rows = tx.query(clause.where(table.c.mission_id == mission_id).order_by(table.c[order]))
    return [record(*row) for row in rows]


def _events(tx: Tx, mission_id: int) -> list[PastEvent]:
    clause = select(events.c.seq, events.c.job_id, events.c.at, events.c.event, events.c.data)
    rows = tx.query(clause.where(events.c.mission_id == mission_id).order_by(events.c.seq))
    return [
        PastEvent(seq, job_id, at, event, {} if told is None else from_json(told))
        for seq, job_id, at, event, told in rows
    ]


def _attempts(tx: Tx, mission_id: int) -> dict[tuple[int, int], PastAttempt]:
    clause = (
        select(
            attempts.c.job_id, attempts.c.attempt, attempts.c.error, attempts.c.input_tokens,
            attempts.c.output_tokens, runners.c.alive_until,
        )
        .join_from(attempts, jobs, attempts.c.job_id == jobs.c.id)
        .outerjoin(runners, runners.c.id == attempts.c.runner_id)
        .where(jobs.c.mission_id == mission_id)
    )  # fmt: skip
    return {(row[0], row[1]): PastAttempt(*row) for row in tx.query(clause)}
