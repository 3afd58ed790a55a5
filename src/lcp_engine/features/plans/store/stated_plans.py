"""Store the plans that missions state, and read what the steps before one have given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

from pydantic import JsonValue
from sqlalchemy import (
    Column,
    ForeignKey,
    Integer,
    Table,
    Text,
    bindparam,
    case,
    func,
    null,
    select,
    text,
    update,
)

from lcp_engine.core.job_states import State
from lcp_engine.core.limits.terms import terms_of
from lcp_engine.store.db.statements import Statement, insert_rows
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.row_types import JobRow, PlanRow, job_row
from lcp_engine.store.schema import Id, edges, jobs, metadata, plans, results

stated_plans = Table(
    "stated_plans",
    metadata,
    Column("mission_id", Id, ForeignKey("missions.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("place", Integer, nullable=False),
    Column("text", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""The plans that a mission states, with all their steps; `place` 0 is the one that begins, the others may follow it."""

RESOLVED = "params_resolved"
"""The event of a step whose references were replaced by what they stand for; its data has the params before."""
MOST_COMPARED = 1_000_000
"""Bytes of a larger result are not read to evaluate a condition, which is done while others wait to write."""


class StatedText(NamedTuple):
    """A plan that a mission states, as JSON."""

    name: str
    place: int
    text: str


_ANSWERED = Statement(
    select(plans.c.id)
    .where(plans.c.mission_id == bindparam("mission"), plans.c.parent_id == bindparam("plan"))
    .where(plans.c.job_id.is_not(None), plans.c.stated.is_not(None))
    .order_by(plans.c.id)
)


class Before(NamedTuple):
    """A step that another one waits for: its id in the plan, its kind, its state and its result."""

    step: str
    kind: str
    state: State
    result: JsonValue


_NEW = insert_rows(stated_plans, ("mission_id", *StatedText._fields))
_ALL = Statement(
    select(stated_plans.c.name, stated_plans.c.place, stated_plans.c.text)
    .where(stated_plans.c.mission_id == bindparam("mission"))
    .order_by(stated_plans.c.place)
)
_ONE = Statement(
    select(stated_plans.c.text).where(
        stated_plans.c.mission_id == bindparam("mission"), stated_plans.c.name == bindparam("plan")
    )
)
_BEFORE = Statement(
    select(
        jobs.c.terms,
        jobs.c.kind,
        jobs.c.state,
        func.coalesce(
            jobs.c.result,
            case(
                (results.c.size <= bindparam("most", type_=Integer), results.c.text), else_=null().cast(Text)
            ),
        ),
    )
    .select_from(edges)
    .join(jobs, jobs.c.id == edges.c.after_id)
    .outerjoin(results, results.c.sha256 == jobs.c.result_sha256)
    .where(edges.c.job_id == bindparam("job"), jobs.c.terms.is_not(None))
    .order_by(edges.c.after_id)
)
_STEPS = select(*(jobs.c[field.name] for field in fields(JobRow))).where(
    text("plan_id IS NOT NULL"), jobs.c.plan_id == bindparam("plan")
)
_UNSETTLED = Statement(_STEPS.where(text("settled_seq IS NULL")).order_by(jobs.c.id))
_STEPS_OF = Statement(_STEPS.where(jobs.c.terms.is_not(None)).order_by(jobs.c.id))
_COUNTS = Statement(
    select(jobs.c.state, func.count())
    .where(text("plan_id IS NOT NULL"), jobs.c.plan_id == bindparam("plan"), jobs.c.terms.is_not(None))
    .group_by(jobs.c.state)
)
_ERROR = Statement(select(jobs.c.error).where(jobs.c.id == bindparam("job")))
_RESOLVE = Statement(
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values({name: bindparam(f"new_{name}") for name in ("params", "fingerprint", "effect", "terms")})
)


def keep_plans(tx: Tx, mission_id: int, plans: Sequence[StatedText]) -> None:
    tx.many(_NEW, [(mission_id, *plan) for plan in plans])


def stated_plans_of(tx: Tx, mission_id: int) -> list[StatedText]:
    """The plans that a mission states, the one that begins first."""
    return [StatedText(*row) for row in tx.rows(_ALL, mission=mission_id)]


def stated_plan(tx: Tx, mission_id: int, name: str) -> str:
    """One plan that a mission states, as JSON."""
    row = tx.row(_ONE, mission=mission_id, plan=name)
    assert row is not None, f"mission {mission_id} states no plan {name}"
    return str(row[0])


def steps_before(tx: Tx, job_id: int, most: int = 2**31 - 1) -> list[Before]:
    """States and results of the steps that a job waits for; a result of more than `most` bytes is null."""
    return [
        Before(terms_of(terms).step, str(kind), State(state), None if result is None else json.loads(result))
        for terms, kind, state, result in tx.rows(_BEFORE, job=job_id, most=most)
    ]


def unsettled_steps(tx: Tx, plan_id: int) -> list[JobRow]:
    """The jobs of a plan that are not settled, oldest first."""
    return [job_row(row) for row in tx.rows(_UNSETTLED, plan=plan_id)]


def steps_of_plan(tx: Tx, plan_id: int) -> list[JobRow]:
    """The steps of a stated plan, in their order."""
    return [job_row(row) for row in tx.rows(_STEPS_OF, plan=plan_id)]


def count_steps(tx: Tx, plan_id: int) -> dict[str, int]:
    """Number of steps of a stated plan in each state."""
    return {str(state): int(count) for state, count in tx.rows(_COUNTS, plan=plan_id)}


def error_of(tx: Tx, job_id: int) -> str | None:
    """The error of a job, as JSON."""
    row = tx.row(_ERROR, job=job_id)
    return None if row is None else row[0]


def store_resolved(
    tx: Tx, job_id: int, *, params: str, fingerprint: str, effect: str | None, terms: str
) -> None:
    """Store the params of a step without their references, and what follows from them."""
    tx.run(
        _RESOLVE,
        job=job_id,
        new_params=params,
        new_fingerprint=fingerprint,
        new_effect=effect,
        new_terms=terms,
    )


def answered_plans(tx: Tx, plan: PlanRow) -> list[int]:
    """The plans that the planner of a plan has answered with, oldest first."""
    return [int(row[0]) for row in tx.rows(_ANSWERED, mission=plan.mission_id, plan=plan.id)]
