"""Hand out jobs: claims, leases, heartbeats (R17)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import zip_longest
from typing import Protocol, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Integer,
    TextClause,
    bindparam,
    case,
    column,
    func,
    insert,
    literal_column,
    null,
    select,
    text,
    update,
)

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.job_states import RELEASE
from lcp_engine.core.limits.permits import Limit
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.conditions import DELAYED, LIVE, READY
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.db.statements import Statement, update_rows
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow, RunnerRow, job_row
from lcp_engine.store.schema import jobs, runners

LEASE_SECONDS = 10.0
LEASE: Micros = int(LEASE_SECONDS * SECOND)
IDLE_LEASE: Micros = 90 * SECOND
"""For so long an idle runner counts as being there; what it says comes every 30 s."""
MOST_DUE = 1000
"""How many delayed jobs a claim makes ready; beyond that the first due goes before the most urgent."""
MOST_MISSIONS = 50
"""How many missions a claim compares, so that its cost does not grow with their number."""
MOST_SERVED = 4
"""How many of them share its jobs, since each has to be locked and written; more only if these have too few jobs."""
NEWCOMER: Micros = 60 * SECOND
"""A mission that was never served goes before those that were served since a minute before its job was created."""


@dataclass(frozen=True)
class Scope:
    """Which jobs a runner claims: kinds (in sorted order), and one mission or all."""

    kinds: tuple[str, ...]
    mission_id: int | None = None


class MissionFilter(Protocol):
    """Which missions a runner serves; `elsewhere` are those that it has met and leaves to others."""

    @property
    def elsewhere(self) -> frozenset[int]: ...
    def includes(self, tx: Tx, mission_id: int, /) -> bool: ...


class Throttle(Protocol):
    """Limits of what may start, as one runner knows them. Any thread may call."""

    def make_ready(self, ledger: Ledger, /) -> None:
        """Make jobs ready that were set aside, as far as there are permits for them now."""

    def admit(self, ledger: Ledger, found: list[JobRow], /) -> tuple[list[JobRow], bool]:
        """Those of the found jobs that have a permit, which is taken, and whether others were set aside."""

    def note_ended(self, ended: Sequence[JobRow], /) -> None:
        """Look at the limits of these jobs with the next claim: others may run in their place."""

    def give_back(self, ledger: Ledger, released: Sequence[JobRow], /) -> None:
        """Take back the starts of jobs that were claimed and have not begun; their missions are locked."""

    def next_look(self, tx: Tx, /) -> Micros | None:
        """When jobs that wait for a permit should be looked at; None if none wait."""


class Unlimited:
    """Lets all jobs start."""

    def make_ready(self, ledger: Ledger, /) -> None:
        pass

    def admit(self, ledger: Ledger, found: list[JobRow], /) -> tuple[list[JobRow], bool]:
        return found, False

    def note_ended(self, ended: Sequence[JobRow], /) -> None:
        pass

    def give_back(self, ledger: Ledger, released: Sequence[JobRow], /) -> None:
        pass

    def next_look(self, tx: Tx, /) -> Micros | None:
        return None


def _refuse_limits(tx: Tx, limits: Mapping[str, Limit]) -> None:
    limited = [kind for kind, limit in limits.items() if not limit.is_none]
    if limited:
        message = f"jobs of kind {limited[0]} are limited, for which no feature is installed"
        raise LcpError(ErrorCode.NOT_INSTALLED, message)


@dataclass(frozen=True)
class ClaimGate:
    """Limits of what may start, shared by all runners: those of kinds are stated, and each runner opens its throttle.

    `open` is given the clock of the runner, and what names the server that the planner of a spec asks, with its limit.
    """

    state: Callable[[Tx, Mapping[str, Limit]], None] = _refuse_limits
    open: Callable[
        [Scope, MissionFilter, Callable[[], float], Callable[[str], tuple[str, Limit] | None]], Throttle
    ] = lambda *runner: Unlimited()


class _AllMissions:
    elsewhere: frozenset[int] = frozenset()

    def includes(self, tx: Tx, mission_id: int, /) -> bool:
        return True


ALL_MISSIONS = _AllMissions()
_NOT_STARTED = because(ReasonCode.NOT_STARTED)
_Where: TypeAlias = ColumnElement[bool] | TextClause
_JOB_COLUMNS = tuple(jobs.c[field.name] for field in fields(JobRow))
_RUNNER_COLUMNS = tuple(runners.c[field.name] for field in fields(RunnerRow))
_ONE: ColumnElement[int] = literal_column("1")
_NONE: ColumnElement[int] = literal_column("0")
_READY = text(READY)
_DELAYED = text(DELAYED)
_RUNNING = text("jobs.state = 'running'")
# All columns of the index: by fewer of them, PostgreSQL may walk past every job that is settled.
BY_URGENCY: tuple[TextClause | ColumnElement[int], ...] = (
    text("priority DESC"), jobs.c.mission_id, jobs.c.id,
)  # fmt: skip
_FIRST = "ORDER BY priority DESC, mission_id, id LIMIT 1"
_IS_DUE = f"SELECT 1 FROM jobs WHERE {DELAYED} AND run_after <= :now AND %s ORDER BY run_after LIMIT 1"
_PASSED = "(SELECT passed FROM runners WHERE id = :runner)"
_BY_IDS = Statement(select(*_JOB_COLUMNS).where(jobs.c.id == bindparam("id")))
_END_DELAY = update_rows(
    {"job": jobs.c.id, "due": jobs.c.run_after},
    lambda given: (
        update(jobs)
        .where(jobs.c.id == given("job"), text("jobs.state = 'queued'"), jobs.c.run_after == given("due"))
        .values(run_after=null())
    ),
)
_NEW_RUNNER = Statement(
    insert(runners)
    .values({name: bindparam(name) for name in ("uid", "host", "boot", "pid", "started_at", "alive_until")})
    .returning(runners.c.id)
)
# It changes with each renewal, whatever the clock says: others know a runner's renewals by that.
_BEAT = Statement(
    update(runners)
    .where(runners.c.id == bindparam("runner"))
    .values(
        alive_until=case(
            (runners.c.alive_until == bindparam("until"), bindparam("other")), else_=bindparam("until")
        )
    )
)
_NOTE_SILENT_ROOTS = Statement(
    update(runners).where(runners.c.id == bindparam("runner")).values(silent_roots=bindparam("roots"))
)
_PASS = Statement(
    update(runners).where(runners.c.id == bindparam("runner")).values(passed=bindparam("new_passed"))
)
_RUNNER = Statement(select(*_RUNNER_COLUMNS).where(runners.c.id == bindparam("runner")).with_for_update())
_LEAVE = Statement(
    update(runners)
    .where(runners.c.id == bindparam("runner"))
    .values(alive_until=bindparam("until"), ended_at=bindparam("until"))
)
_LEASING = Statement(
    select(*_RUNNER_COLUMNS)
    .where(runners.c.id.in_(select(jobs.c.runner_id).where(text("state = 'running'"))))
    .where(runners.c.id != bindparam("runner"))
)
_LEASED_BY = Statement(
    select(*_JOB_COLUMNS).where(_RUNNING, jobs.c.runner_id == bindparam("runner")).order_by(jobs.c.id)
)


_ABROAD = {
    "sqlite": text("mission_id NOT IN (SELECT value FROM json_each(:away))"),
    "postgresql": text("coalesce(mission_id <> ALL (CAST(:away AS bigint[])), false)"),
}


# No "=": PostgreSQL would then order by the id alone, and walk past every job that is settled.
_OF_MISSION = "mission_id >= :mission AND mission_id <= :mission"


@dataclass(frozen=True)
class Line:
    """The missions whose turn it is, all with jobs of the highest priority, and how many jobs each may have taken.

    `served_at` is when the last one of all was served. `passed` is the mission that was come to before, `passes` the
    one that was come to now if not all were compared. `has_more`: whether there are other missions or less urgent jobs.
    """

    missions: Sequence[int] = ()
    priority: int = 0
    share: int = 1
    served_at: Micros = 0
    passed: int = 0
    passes: int = 0
    has_more: bool = False


@cache
def line_of(scope: Scope, away: str | None, which: str = READY, passed: str = _PASSED) -> Statement:
    """The missions of the scope's most urgent jobs: the first `MOST_MISSIONS` after `passed`, or of all if none is.

    Each with when it was served, the priority, `passed`, whether there are less urgent jobs, and whether a delayed job
    is due. It steps from one mission to the next in the index, however many jobs each has.
    """
    if scope.mission_id is not None:
        return _line_of_one(scope, away, which)
    within = _within(scope, away)
    which = f"FROM jobs WHERE {which} AND {within}"
    created = (
        f"SELECT created_at {which} AND priority = line.priority AND mission_id = line.mission_id {_FIRST}"
    )
    after = f"(SELECT mission_id {which} AND priority = %s.priority AND mission_id > %s {_FIRST})"
    return Statement(
        text(f"""
        WITH RECURSIVE line (mission_id, place, priority, passed, lower, due) AS (
            SELECT coalesce({after % ("top", "top.passed")}, top.mission_id), 1, priority, passed,
                (SELECT 1 {which} AND priority < top.priority {_FIRST}), ({_IS_DUE % within})
            FROM (SELECT priority, mission_id, {passed} AS passed {which} {_FIRST}) AS top
            UNION ALL
            SELECT {after % ("line", "line.mission_id")}, place + 1, priority, passed, lower, due
            FROM line WHERE mission_id IS NOT NULL AND place < {MOST_MISSIONS}
        )
        SELECT line.mission_id, coalesce(served_at, ({created}) - {NEWCOMER}), priority, passed, lower, due
        FROM line JOIN missions ON missions.id = line.mission_id
        """)
    )


def _line_of_one(scope: Scope, away: str | None, which: str) -> Statement:
    """Like `line_of` for the scope of one mission: it steps from one priority to the next."""
    which, within = f"FROM jobs WHERE {which}", _within(scope, away)
    return Statement(
        text(f"""
        WITH RECURSIVE level (priority) AS (
            SELECT (SELECT priority {which} {_FIRST})
            UNION ALL
            SELECT (SELECT priority {which} AND priority < level.priority {_FIRST})
            FROM level WHERE priority IS NOT NULL
        )
        SELECT CAST(:mission AS bigint), 0, priority, 0, 1, ({_IS_DUE % within})
        FROM level WHERE (
            SELECT 1 {which} AND priority = level.priority AND {within} {_FIRST}
        ) = 1 ORDER BY priority DESC LIMIT 1
        """)
    )


@cache
def _of_first(scope: Scope, away: str | None) -> Statement:
    """The next jobs of the first mission of the highest priority: all if no other one has any, else one.

    Each with whether there are less urgent jobs, other missions, and a delayed job that is due.
    """
    which = f"FROM jobs WHERE {READY} AND {_within(scope, away)}"
    priority, mission = (f"(SELECT {column} {which} {_FIRST})" for column in ("priority", "mission_id"))
    lower = f"(SELECT 1 {which} AND priority < {priority} {_FIRST})"
    other = f"SELECT 1 {which} AND priority = {priority} AND mission_id > {mission} {_FIRST}"
    due = f"({_IS_DUE % _within(scope, away)})"
    first = text(f"priority = {priority} AND mission_id >= {mission} AND mission_id <= {mission}")
    clause = select(*_JOB_COLUMNS, *map(text, (lower, f"({other})", due))).where(_READY, _kinds(scope), first)
    is_alone = text(other).columns(column("other", Integer)).scalar_subquery().is_(None)
    most = case((is_alone, bindparam("most")), else_=_ONE)
    return Statement(clause.order_by(*BY_URGENCY).limit(most).offset(_NONE))


@cache
def _next_of(scope: Scope) -> Statement:
    """The mission's next ready jobs of one priority."""
    clause = select(*_JOB_COLUMNS).where(_READY, *of_mission(scope)).order_by(*BY_URGENCY)
    return Statement(clause.limit(bindparam("most")).offset(_NONE))


def of_mission(scope: Scope) -> tuple[TextClause, TextClause]:
    """The conditions for the jobs of one mission in line."""
    return _kinds(scope), text(f"priority = :priority AND {_OF_MISSION}")


@cache
def _due(scope: Scope, away: str | None) -> Statement:
    """The delayed jobs of a scope that are due."""
    clause = select(jobs.c.id, jobs.c.run_after, jobs.c.mission_id)
    clause = clause.where(_DELAYED, jobs.c.run_after <= bindparam("now"), *in_scope(scope, away))
    return Statement(clause.order_by(jobs.c.run_after).limit(literal_column(f"{MOST_DUE}")).offset(_NONE))


@cache
def _next_ready(scope: Scope, away: str | None) -> Statement:
    """When the first queued job of a scope may run."""
    ready, delayed = ((which, *in_scope(scope, away)) for which in (_READY, _DELAYED))
    # Ordered as the index is, though any row would do: otherwise PostgreSQL may read the whole table for the first.
    at_once = select(_NONE).select_from(jobs).where(*ready).order_by(*BY_URGENCY)
    later = select(jobs.c.run_after).where(*delayed).order_by(jobs.c.run_after)
    first = (clause.limit(_ONE).offset(_NONE).scalar_subquery() for clause in (at_once, later))
    return Statement(select(func.coalesce(*first)))


@cache
def _any_open(scope: Scope, away: str | None) -> Statement:
    where = [text("state IN ('queued', 'running')"), text(LIVE), *in_scope(scope, away)]
    return Statement(select(jobs.c.mission_id).where(*where).limit(_ONE).offset(_NONE))


def in_scope(scope: Scope, away: str | None) -> list[_Where]:
    """The conditions for the jobs of a scope, without missions that are left to others."""
    where: list[_Where] = [_kinds(scope)]
    if scope.mission_id is not None:
        where += [jobs.c.mission_id == bindparam("mission"), text(LIVE)]
    return where if away is None else [*where, _ABROAD[away]]


def _within(scope: Scope, away: str | None) -> str:
    """Like `in_scope`, as SQL, and without the index of a mission's jobs."""
    one = [] if scope.mission_id is None else [_OF_MISSION]
    return " AND ".join([str(_kinds(scope)), *one, *([] if away is None else [str(_ABROAD[away])])])


def _kinds(scope: Scope) -> TextClause:
    kinds = ", ".join("'" + kind.replace("'", "''") + "'" for kind in scope.kinds)
    # "coalesce": PostgreSQL expects few rows of a list, and would sort the whole queue instead of walking its index.
    return text(f"coalesce(kind IN ({kinds}), false)")


def claim(
    ledger: Ledger,
    scope: Scope,
    runner_id: int,
    most: int,
    served: MissionFilter = ALL_MISSIONS,
    *,
    throttle: Throttle | None = None,
) -> list[JobRow]:
    """Lease up to `most` ready jobs to a runner; the leases are valid when the transaction is committed."""
    claimed: list[JobRow] = []
    if not scope.kinds or most < 1:
        return claimed
    if throttle is not None:
        throttle.make_ready(ledger)
    goes_on = True
    while goes_on and len(claimed) < most:
        line, found = _find(ledger, scope, runner_id, most - len(claimed), served)
        admitted, were_set_aside = (found, False) if throttle is None else throttle.admit(ledger, found)
        ledger.start_all(admitted, runner_id)
        turn = max(line.served_at, ledger.tx.now) + 1
        for place, mission_id in enumerate(dict.fromkeys(job.mission_id for job in admitted)):
            ledger.mission(mission_id).served_at = turn + place
        claimed += admitted
        goes_on = were_set_aside or (line.has_more and bool(found)) or len(found) >= line.share
    return claimed


def _find(
    ledger: Ledger, scope: Scope, runner_id: int, most: int, served: MissionFilter
) -> tuple[Line, list[JobRow]]:
    """The missions whose turn it is, and up to `most` of their jobs, the missions locked."""
    tx = ledger.tx
    if scope.mission_id is None:
        away, given = scope_params(tx, scope, served)
        rows = tx.rows(_of_first(scope, away), now=tx.now, most=most, **given)
        if not rows and not _end_delays(ledger, scope, served):
            return Line(), []
        found = [job_row(row[:-3]) for row in rows]
        lower, others, due = rows[0][-3:] if rows else (None, 1, 1)
        if others is None and due is None and served.includes(tx, found[0].mission_id):
            alone = Line([found[0].mission_id], found[0].priority, most, has_more=lower is not None)
            if not tx.is_sqlite and not ledger.holds(found[0].mission_id):
                return alone, _find_and_lock(ledger, scope, alone, most)
            ledger.lock_if_free(alone.missions)  # there is one writer at a time
            return alone, found
    line = _find_line(ledger, scope, runner_id, most, served)
    return line, _find_and_lock(ledger, scope, line, most)


def _find_line(ledger: Ledger, scope: Scope, runner_id: int, most: int, served: MissionFilter) -> Line:
    """The missions to take `most` jobs from, delayed jobs that were due made ready."""
    tx = ledger.tx
    while True:
        away, given = scope_params(tx, scope, served)
        rows = tx.rows(line_of(scope, away), now=tx.now, runner=runner_id, **given)
        is_due = not rows or rows[0][-1] is not None
        if is_due and _end_delays(ledger, scope, served):
            continue
        line = in_turn(ledger, rows, most)
        # A mission that is not served here is left out of the next round.
        if all(served.includes(tx, mission_id) for mission_id in line.missions):
            break
    if line.passes != line.passed:
        tx.send(_PASS, runner=runner_id, new_passed=line.passes)
    return line


def in_turn(ledger: Ledger, rows: Sequence[Row], most: int) -> Line:
    """The missions of `line_of` whose turn it is to have `most` jobs taken; this transaction may have served them."""
    if not rows:
        return Line()
    served_at = {
        mission_id: (ledger.mission(mission_id).served_at if ledger.holds(mission_id) else None) or at
        for mission_id, at, *_ in rows
    }
    _, _, priority, passed, lower, *_ = rows[0]
    missions = sorted(served_at, key=lambda mission_id: (served_at[mission_id], mission_id))[:most]
    is_full = len(rows) == MOST_MISSIONS
    return Line(
        missions=missions,
        priority=priority,
        share=-(-most // min(len(missions), MOST_SERVED)),
        served_at=max(served_at.values()),
        passed=passed or 0,
        passes=max(served_at) if is_full else 0,
        has_more=lower is not None or is_full or len(missions) < len(rows),
    )


def _find_and_lock(ledger: Ledger, scope: Scope, line: Line, most: int) -> list[JobRow]:
    """A job of each mission in line in turn, their missions locked; one round trip to PostgreSQL for `MOST_SERVED`."""
    found: list[JobRow] = []
    given = {"priority": line.priority, "most": line.share}
    for first in range(0, len(line.missions), MOST_SERVED):
        missions = line.missions[first : first + MOST_SERVED]
        lock = ledger.lock_if_free_later(missions)
        answers = [ledger.tx.ask(_next_of(scope), mission=mission_id, **given) for mission_id in missions]
        lock()
        ready = [
            job_row(row) for turns in zip_longest(*(answer() for answer in answers)) for row in turns if row
        ]
        found += [job for job in ready if ledger.holds(job.mission_id)]
        if len(found) >= most:
            break
    return found[:most]


def _end_delays(ledger: Ledger, scope: Scope, served: MissionFilter) -> bool:
    """Make the due jobs ready, so that urgency alone orders what is ready. Whether there were any."""
    away, given = scope_params(ledger.tx, scope, served)
    due = ledger.tx.rows(_due(scope, away), now=ledger.tx.now, **given)
    ledger.lock_if_free(row[2] for row in due)
    rows = [(job_id, run_after) for job_id, run_after, mission_id in due if ledger.holds(mission_id)]
    ledger.tx.many(_END_DELAY, rows)
    return bool(rows)


def scope_params(tx: Tx, scope: Scope, served: MissionFilter) -> tuple[str | None, dict[str, object]]:
    """The dialect in which missions are left out, None if none is, and the params of a statement of the scope."""
    if not served.elsewhere:
        return None, {"mission": scope.mission_id}
    ids = sorted(served.elsewhere)
    return tx.database, {"mission": scope.mission_id, "away": str(ids) if tx.is_sqlite else ids}


def release(
    ledger: Ledger, job: JobRow, reason: Reason = _NOT_STARTED, *, run_after: Micros | None = None
) -> bool:
    """Give back a job that was claimed and has done nothing; no attempt is charged."""
    return ledger.move(job, RELEASE, reason=reason, is_leased=True, run_after=run_after)


def next_ready_at(tx: Tx, scope: Scope, served: MissionFilter = ALL_MISSIONS) -> Micros | None:
    """When the next queued job may run (0: now); None if none is queued."""
    if not scope.kinds:
        return None
    away, given = scope_params(tx, scope, served)
    row = tx.row(_next_ready(scope, away), **given)
    return None if row is None or row[0] is None else int(row[0])


def has_open(tx: Tx, scope: Scope, served: MissionFilter = ALL_MISSIONS) -> bool:
    """True if any job of the scope is queued, delayed or leased."""
    while scope.kinds:
        away, given = scope_params(tx, scope, served)
        row = tx.row(_any_open(scope, away), **given)
        if row is None:
            return False
        if served.includes(tx, int(row[0])):
            return True
    return False


def add_runner(tx: Tx, *, uid: str, host: str, boot: str, pid: int) -> int:
    row = tx.row(
        _NEW_RUNNER, uid=uid, host=host, boot=boot, pid=pid, started_at=tx.now, alive_until=tx.now + LEASE
    )
    assert row is not None
    return int(row[0])


def beat(tx: Tx, runner_id: int, *, is_idle: bool = False) -> None:
    """Renew all leases of the runner; one that is idle has none, and comes back later."""
    until = tx.now + (IDLE_LEASE if is_idle else LEASE)
    tx.send(_BEAT, runner=runner_id, until=until, other=until + 1)


def note_silent_roots(tx: Tx, runner_id: int, roots: Iterable[str]) -> None:
    tx.send(_NOTE_SILENT_ROOTS, runner=runner_id, roots=to_json([*sorted(roots)]))


def locked_runner(tx: Tx, runner_id: int) -> RunnerRow | None:
    """The row of a runner, if it is there; it cannot renew its leases before this transaction ends."""
    row = tx.row(_RUNNER, runner=runner_id)
    return None if row is None else RunnerRow(*row)


def leave(tx: Tx, runner_id: int) -> None:
    tx.send(_LEAVE, runner=runner_id, until=tx.now)


def leasing_runners(tx: Tx, runner_id: int) -> list[RunnerRow]:
    """The other runners that hold leases."""
    return [RunnerRow(*row) for row in tx.rows(_LEASING, runner=runner_id)]


def leased_by(tx: Tx, runner_id: int) -> list[JobRow]:
    return [job_row(row) for row in tx.rows(_LEASED_BY, runner=runner_id)]


def find_jobs(tx: Tx, job_ids: Iterable[int]) -> Sequence[JobRow]:
    found = (tx.row(_BY_IDS, id=job_id) for job_id in job_ids)
    return [job_row(row) for row in found if row is not None]


_LIVE_JOBS = Statement(
    select(*(jobs.c[field.name] for field in fields(JobRow)))
    .where(text(LIVE), jobs.c.mission_id == bindparam("mission"))
    .order_by(jobs.c.id)
    .with_for_update()
)


_OPEN_TURNS = Statement(
    select(*(jobs.c[field.name] for field in fields(JobRow)))
    .where(text("plan_id IS NOT NULL"), jobs.c.plan_id == bindparam("plan"), text("settled_seq IS NULL"))
    .where(text("role <> 'work'"))
    .order_by(jobs.c.id)
)


def open_turns(ledger: Ledger, plan: PlanRow) -> list[JobRow]:
    """The plan's turns and steps that are not settled, oldest first."""
    if plan.open + plan.held == 0:
        return []
    return [job_row(row) for row in ledger.tx.rows(_OPEN_TURNS, plan=plan.id)]


def live_jobs(ledger: Ledger, mission: MissionRow) -> list[JobRow]:
    """The mission's jobs that are not settled, oldest first."""
    return [job_row(row) for row in ledger.tx.rows(_LIVE_JOBS, mission=mission.id)]
