"""Read and write the edges between the steps of a plan: which job may run once which other one has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import NamedTuple

from sqlalchemy import bindparam, literal_column, select, text, update

from lcp_engine.core.job_states import Need, State, fulfils
from lcp_engine.store.conditions import NEXT_TURN
from lcp_engine.store.db.statements import Statement, insert_rows
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.row_types import JobRow, job_row
from lcp_engine.store.schema import edges, jobs


class Edge(NamedTuple):
    """Job `job_id` waits until job `after_id` has ended as it needs."""

    after_id: int
    job_id: int
    needs: Need


class Unmet(NamedTuple):
    """A job that another one waits for, and its state."""

    job_id: int
    state: State


_JOB = tuple(jobs.c[field.name] for field in fields(JobRow))
_NEW = insert_rows(edges, Edge._fields)
_FOLLOWERS = Statement(
    select(*_JOB, edges.c.needs)
    .join_from(edges, jobs, jobs.c.id == edges.c.job_id)
    .where(edges.c.after_id == bindparam("job"))
    .order_by(jobs.c.id)
)
_AWAITED = Statement(
    select(edges.c.after_id, edges.c.needs, jobs.c.state)
    .join_from(edges, jobs, jobs.c.id == edges.c.after_id)
    .where(edges.c.job_id == bindparam("job"))
    .order_by(edges.c.after_id)
)
_OF_MISSION = Statement(
    select(edges.c.after_id, edges.c.job_id, edges.c.needs)
    .join_from(edges, jobs, jobs.c.id == edges.c.job_id)
    .where(jobs.c.mission_id == bindparam("mission"))
    .order_by(edges.c.after_id, edges.c.job_id)
)
_NEXT_TURN = Statement(
    select(*_JOB)
    .where(text(NEXT_TURN), jobs.c.mission_id == bindparam("mission"))
    .order_by(jobs.c.id)
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)


def connect(tx: Tx, new: Sequence[Edge]) -> None:
    """Store edges; the jobs count them already."""
    tx.many(_NEW, new)


def count_awaited(tx: Tx, job: JobRow, target: State) -> None:
    """Update what the followers of a job that goes to another state wait for."""
    fulfilled, missed = fulfils(target), fulfils(job.state)
    if fulfilled or missed:
        tx.send(_count(fulfilled or missed), job=job.id, by=-1 if fulfilled else 1)


@cache
def _count(needs: tuple[Need, ...]) -> Statement:
    among = ", ".join(f"'{need}'" for need in needs)
    behind = select(edges.c.job_id).where(
        edges.c.after_id == bindparam("job"), text(f"edges.needs IN ({among})")
    )
    return Statement(
        update(jobs).where(jobs.c.id.in_(behind)).values(waits_for=jobs.c.waits_for + bindparam("by"))
    )


def followers_of(tx: Tx, job: JobRow) -> list[tuple[JobRow, Need]]:
    """The jobs that wait, or have waited, for this one, oldest first, each with what it needs of it."""
    if not job.followers:
        return []
    return [(job_row(row[:-1]), Need(row[-1])) for row in tx.rows(_FOLLOWERS, job=job.id)]


def unmet(tx: Tx, job_id: int) -> list[Unmet]:
    """Jobs that a job still waits for, oldest first."""
    found = ((row[0], Need(row[1]), State(row[2])) for row in tx.rows(_AWAITED, job=job_id))
    return [Unmet(after_id, state) for after_id, needs, state in found if needs not in fulfils(state)]


def edges_of(tx: Tx, mission_id: int) -> list[Edge]:
    """All edges between the jobs of a mission."""
    return [Edge(row[0], row[1], Need(row[2])) for row in tx.rows(_OF_MISSION, mission=mission_id)]


def next_turn(tx: Tx, mission_id: int) -> JobRow | None:
    """The oldest turn or step of a mission that waits for nothing but the turn before it."""
    row = tx.row(_NEXT_TURN, mission=mission_id)
    return None if row is None else job_row(row)
