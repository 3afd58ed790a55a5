"""The statements with which a ledger reads and writes missions, plans and jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from itertools import compress
from operator import attrgetter, ne
from typing import Generic, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    Table,
    TextClause,
    bindparam,
    case,
    insert,
    literal_column,
    null,
    select,
    text,
    update,
)

from lcp_engine.clock import Micros
from lcp_engine.core.job_states import START, SUCCEED, Transition
from lcp_engine.store import large_results
from lcp_engine.store.db.statements import Many, NewRow, Statement, insert_rows, update_rows
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.store.schema import attempts, events, jobs, missions, plans

R = TypeVar("R", MissionRow, PlanRow, JobRow)


def _columns(table: Table, record: type[R]) -> list[str]:
    return [field.name for field in fields(record)]


def _select(table: Table, record: type[R]) -> Select[tuple[object, ...]]:
    return select(*(table.c[name] for name in _columns(table, record))).where(table.c.id == bindparam("id"))


# The lock on a mission covers its plans and jobs: they are changed only under it.
MISSION = Statement(_select(missions, MissionRow).with_for_update())
MISSION_AT_ONCE = Statement(_select(missions, MissionRow).with_for_update(nowait=True))
MISSION_IF_FREE = Statement(_select(missions, MissionRow).with_for_update(skip_locked=True))
PLAN = Statement(_select(plans, PlanRow))
JOB = Statement(_select(jobs, JobRow))
RESULT = Statement(select(large_results.RESULT).where(jobs.c.id == bindparam("id")))
_FIXED = {
    "id",
    "uid",
    "name",
    "goal",
    "root",
    "planner",
    "mission_id",
    "job_id",
    "parent_id",
    "depth",
    "pruned_at",
    "stated",
    "on_failure",
}


@cache
def save(table: Table, changed: tuple[str, ...]) -> tuple[Statement, tuple[str, ...]]:
    """The UPDATE of some columns, and their params in order; the param of the row's id is `row`."""
    values: dict[str, BindParameter[object]] = {name: bindparam(f"new_{name}") for name in changed}
    statement = Statement(update(table).where(table.c.id == bindparam("row")).values(values))
    return statement, tuple(f"new_{name}" for name in changed)


EVENT = insert_rows(events, ("mission_id", "seq", "job_id", "at", "event", "data"))
ATTEMPT = insert_rows(attempts, [column.name for column in attempts.c if column.name != "stderr"])
ATTEMPT_WITH_STDERR = insert_rows(attempts, [column.name for column in attempts.c])
LEASES = Statement(
    select(jobs.c.id, jobs.c.attempt).where(
        text("state = 'running'"), jobs.c.runner_id == bindparam("runner")
    )
)
NEW_PLAN = Statement(
    insert(plans)
    .values(
        {
            name: bindparam(name)
            for name in ("mission_id", "job_id", "parent_id", "depth", "stated", "on_failure")
        }
    )
    .returning(plans.c.id)
)


@cache
def new_job(columns: tuple[str, ...]) -> NewRow:
    """Inserts a job with these columns; the others are NULL or their default."""
    return NewRow(insert(jobs).values({name: bindparam(name) for name in columns}), jobs.c.id)


_MOVED = (
    "reason",
    "ended_at",
    "settled_seq",
    "result",
    "error",
    "run_after",
    "held_until",
    "approved",
    "failures",
    "deaths",
)


@cache
def move(transition: Transition, is_leased: bool) -> Statement:
    """The guarded UPDATE of one transition; a leased one names its attempt, the fence (R17)."""
    guard: list[ColumnElement[bool] | TextClause] = [jobs.c.id == bindparam("job"), _starts_from(transition)]
    if is_leased:
        guard.append(jobs.c.attempt == bindparam("fence"))
    values: dict[str, BindParameter[object]] = {name: bindparam(f"new_{name}") for name in _MOVED}
    return Statement(
        update(jobs).where(*guard).values({"state": _target(transition), "limited_by": null(), **values})
    )


def _starts_from(transition: Transition) -> TextClause:
    """Whether a job is in one of the states that a transition starts from."""
    sources = ", ".join(f"'{source}'" for source in sorted(transition.sources))
    # "coalesce": with an index over a state, PostgreSQL would read every job that is in it.
    return text(f"coalesce(jobs.state IN ({sources}), false)")


def _target(transition: Transition) -> ColumnElement[str]:
    return literal_column(f"'{transition.target}'")


def _start() -> Many:
    """`START` for many jobs: each attempt goes up by one and belongs to a runner.

    A job that is in another state gets no state, which no column holds: the transaction fails. A count of the rows that
    were changed would say so, too, and cost a round trip to PostgreSQL.
    """
    params = {"job": jobs.c.id, "runner": jobs.c.runner_id, "now": jobs.c.started_at}
    return update_rows(
        params,
        lambda given: (
            update(jobs)
            .where(jobs.c.id == given("job"))
            .values(
                state=case((_starts_from(START), _target(START))),
                attempt=jobs.c.attempt + literal_column("1"),
                runner_id=given("runner"),
                started_at=given("now"),
                reason=null(),
            )
        ),
    )


def _succeed() -> Many:
    """`move` through `SUCCEED` for many leased jobs; only what differs between them is a param."""
    params = {
        "job": jobs.c.id,
        "fence": jobs.c.attempt,
        "now": jobs.c.ended_at,
        "seq": jobs.c.settled_seq,
        "result": jobs.c.result,
    }
    nothing = {name: null() for name in ("reason", "error", "run_after", "held_until")}
    return update_rows(
        params,
        lambda given: (
            update(jobs)
            .where(
                jobs.c.id == given("job"),
                _starts_from(SUCCEED),
                jobs.c.attempt == given("fence"),
            )
            .values(
                state=_target(SUCCEED),
                ended_at=given("now"),
                settled_seq=given("seq"),
                result=given("result"),
                **nothing,
            )
        ),
    )


STARTED = _start()
SUCCEEDED = _succeed()


def move_params(
    job: JobRow,
    now: Micros,
    settled_seq: int | None,
    *,
    reason: str | None = None,
    result: str | None = None,
    error: str | None = None,
    run_after: Micros | None = None,
    held_until: Micros | None = None,
) -> dict[str, object]:
    """The params of `move`; `settled_seq` is the number of its event if that settles the job."""
    return {
        "job": job.id,
        "fence": job.attempt,
        "new_reason": reason,
        "new_ended_at": None if settled_seq is None else now,
        "new_settled_seq": settled_seq,
        "new_result": result,
        "new_error": error,
        "new_run_after": run_after,
        "new_held_until": held_until,
        "new_approved": job.approved,
        "new_failures": job.failures,
        "new_deaths": job.deaths,
    }


class ChangedColumns(Generic[R]):
    """Finds the columns of a row that a ledger has changed."""

    def __init__(self, table: Table, record: type[R]) -> None:
        names = [name for name in _columns(table, record) if name not in _FIXED]
        self._table = table
        self._names = names
        self.read: Callable[[R], tuple[object, ...]] = attrgetter(*names)

    def changes(self, record: R, before: tuple[object, ...]) -> tuple[Statement, dict[str, object]] | None:
        """The UPDATE of a record that was read as `before`; None if nothing has changed."""
        now = self.read(record)
        if now == before:
            return None
        is_changed = list(map(ne, now, before))
        names, values = compress(self._names, is_changed), compress(now, is_changed)
        statement, params = save(self._table, tuple(names))
        return statement, {**dict(zip(params, values, strict=True)), "row": record.id}


OF_MISSIONS = ChangedColumns(missions, MissionRow)
OF_PLANS = ChangedColumns(plans, PlanRow)
