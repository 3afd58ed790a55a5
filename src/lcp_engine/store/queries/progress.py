"""Measure how far a mission has come, from its events alone.

The measure of one moment is the share of the known work that is done, as if `MARGIN` more jobs were always to come: a
planner never says how much it will ask for. The percentage is the highest measure of any moment so far, so it never
falls; it is 100 from the moment on in which the mission is completed, and less before.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Integer, Select, TextClause, case, func, select

from lcp_engine.core.job_states import (
    ANSWER,
    BLOCK,
    FAIL,
    HOLD,
    PLAN_FAIL,
    PLAN_SUCCEED,
    QUEUE,
    REJECT,
    RETRY,
    RETRY_HELD,
    SUCCEED,
    State,
)
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.excerpt import JOB, excerpt, read_jobs
from lcp_engine.store.queries.history import find_events, find_where, in_column
from lcp_engine.store.queries.mission_facts import Course, Excerpt, JobFact
from lcp_engine.store.schema import events, jobs, missions

MARGIN = 5
"""As many jobs as a reply asks for at most by default."""
ADDS = tuple(transition.event for transition in (QUEUE, HOLD, BLOCK, RETRY, RETRY_HELD))
DOES = tuple(transition.event for transition in (SUCCEED, FAIL, PLAN_SUCCEED, PLAN_FAIL, ANSWER, REJECT))
COMPLETED = "mission_completed"
MOST_LISTED = 200
_TURN_KIND = "agent_plan"


def find_course(tx: Tx, mission_id: int, since: int | None = None) -> Course:
    """How far the mission has come since event `since`; since its newest question where that is None."""
    if since is None:
        since = newest_question(tx, mission_id)
    percentage, before = percentages(tx, mission_id, since)
    counters = select(missions.c.events, missions.c.ran, missions.c.running_since)
    event, ran, running_since = tx.query(counters.where(missions.c.id == mission_id))[0]
    newest = find_events(tx, mission_id, after_seq=event - 1)[0]
    succeeded: list[ColumnElement[bool] | TextClause] = [
        *find_where(tx, mission_id, (State.SUCCEEDED,)).clauses,
        jobs.c.kind != _TURN_KIND,
    ]
    running = find_where(tx, mission_id, (State.RUNNING,)).clauses
    return Course(
        event=event,
        at=str(newest["at"]),
        since=since,
        percentage=percentage,
        before=before,
        covered=_jobs(tx, *succeeded),
        news=_jobs(tx, *succeeded, jobs.c.settled_seq > in_column(since)),
        running=_jobs(tx, *running),
        seconds=(ran + (max(0, tx.now - running_since) if running_since is not None else 0)) / 1_000_000,
    )


def newest_question(tx: Tx, mission_id: int) -> int:
    """The number of the event with which the mission's newest question was asked; 0 before the first."""
    asked = select(events.c.seq).where(events.c.mission_id == mission_id, events.c.event == "asked")
    found = tx.query(asked.order_by(events.c.seq.desc()).limit(1))
    return int(found[0][0]) if found else 0


def percentages(tx: Tx, mission_id: int, since: int, until: int | None = None) -> tuple[int, int]:
    """The percentage at event `until` (None: now), and that at event `since`."""
    moments = _moments(mission_id, until).subquery()
    then = case((moments.c.seq <= in_column(since), moments.c.measure), else_=0)
    now, before = tx.query(select(func.max(moments.c.measure), func.max(then)))[0]
    return int(now or 0), int(before or 0)


def _moments(mission_id: int, until: int | None) -> Select[tuple[int, int]]:
    where = [
        events.c.mission_id == mission_id,
        events.c.event.in_((*ADDS, *DOES, COMPLETED)),
    ]
    if until is not None:
        where.append(events.c.seq <= until)
    measure = 100 * _so_far(DOES) // (_so_far(ADDS) + MARGIN)
    return select(
        events.c.seq, case((events.c.event == COMPLETED, 100), else_=measure).label("measure")
    ).where(*where)


def _so_far(names: tuple[str, ...]) -> ColumnElement[int]:
    """How many events of these names there were up to a row."""
    counted: ColumnElement[int] = func.sum(case((events.c.event.in_(names), 1), else_=0), type_=Integer).over(
        order_by=events.c.seq
    )
    return counted


def _jobs(tx: Tx, *where: ColumnElement[bool] | TextClause) -> Excerpt[JobFact]:
    total = int(tx.query(select(func.count()).select_from(jobs).where(*where))[0][0])
    return Excerpt(
        read_jobs(tx, excerpt(tx, select(*JOB).where(*where), jobs.c.id, total, MOST_LISTED)), total
    )
