"""Track one transaction's changes to missions; write its counters and events at the end.

Nothing else changes the state of a job; `copy_mission` copies jobs in the states they had. All changes of one
transaction to missions, plans and jobs go through one `Ledger`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import compress
from operator import attrgetter, is_not

from pydantic import JsonValue

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.job_states import CREATIONS, SETTLED, START, SUCCEED, Role, State, Transition
from lcp_engine.core.reasons import Reason
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store import edges, large_results, ledger_sql
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.people import hold_seconds
from lcp_engine.store.queries.mission_spec import missing_mission, was_pruned
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow, job_row


@dataclass(slots=True, kw_only=True)
class NewJobRow:
    """A job to create."""

    plan_id: int | None = None
    turn: int | None = None
    parent_id: int | None = None
    name: str | None = None
    kind: str
    params: str
    auto_dispatch: bool | None = None
    role: Role = Role.WORK
    state: State = State.QUEUED
    reason: Reason | str | None = None
    priority: int = 0
    depth: int = 0
    fingerprint: str | None = None
    max_attempts: int = 1
    run_after: Micros | None = None
    error: str | None = None
    waits_for: int | None = None
    followers: int | None = None
    terms: str | None = None
    effect: str | None = None


_NEW_VALUES = attrgetter(*(field.name for field in fields(NewJobRow)))
_NEW_COLUMNS = (
    *(field.name for field in fields(NewJobRow)),
    *("mission_id", "created_at", "ended_at", "settled_seq", "held_until"),
)
_IS_GIVEN = partial(is_not, None)


def ledger_of(tx: Tx) -> Ledger:
    """The ledger of a transaction: one, however many callers share it."""
    known = tx.ledger
    if not isinstance(known, Ledger):
        known = tx.ledger = Ledger(tx)
        tx.at_end.append(known.close)
    return known


class Ledger:
    """The changes of one transaction to missions, plans and jobs."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self._missions: dict[int, MissionRow] = {}
        self._plans: dict[int, PlanRow] = {}
        self._saved_missions: dict[int, tuple[object, ...]] = {}
        self._saved_plans: dict[int, tuple[object, ...]] = {}
        self._highest = 0
        self._events: list[Row] = []
        self._attempts: list[Row] = []
        self._attempts_with_stderr: list[Row] = []
        self._large: list[tuple[int, str]] = []

    def lock(self, mission_ids: Iterable[int]) -> None:
        """Lock missions in the order of their ids, so that two transactions never wait for each other (R7)."""
        for mission_id in sorted(set(mission_ids)):
            self.mission(mission_id)

    def lock_if_free(self, mission_ids: Iterable[int]) -> None:
        """Like `lock`, but leaves out missions that others have locked, if one with a higher id is locked here."""
        self.lock_if_free_later(mission_ids)()

    def lock_if_free_later(self, mission_ids: Iterable[int]) -> Callable[[], None]:
        """Like `lock_if_free`; the returned function waits for the locks. Queries sent before that run under them."""
        asked = []
        for mission_id in sorted(set(mission_ids)):
            if not self.holds(mission_id):
                is_next = mission_id > self._highest
                statement = ledger_sql.MISSION if is_next else ledger_sql.MISSION_IF_FREE
                asked.append((mission_id, is_next, self.tx.ask(statement, id=mission_id)))

        def read() -> None:
            for mission_id, is_next, answer in asked:
                rows = answer()
                if rows:
                    self._keep(rows[0])
                elif is_next:
                    raise missing_mission(mission_id)

        return read

    def holds(self, mission_id: int) -> bool:
        return mission_id in self._missions

    def mission(self, mission_id: int) -> MissionRow:
        """The mission, locked until the commit. Raises `NOT_FOUND`."""
        known = self._missions.get(mission_id)
        if known is not None:
            return known
        # Out of order, it fails and does not wait: the units of the transaction are then run one by one.
        statement = ledger_sql.MISSION if mission_id > self._highest else ledger_sql.MISSION_AT_ONCE
        row = self.tx.row(statement, id=mission_id)
        if row is None:
            raise missing_mission(mission_id)
        return self._keep(row)

    def plan(self, plan_id: int) -> PlanRow:
        known = self._plans.get(plan_id)
        if known is None:
            row = self.tx.row(ledger_sql.PLAN, id=plan_id)
            if row is None:
                raise LcpError(ErrorCode.NOT_FOUND, f"plan {plan_id} is not in the database")
            known = self._plans[plan_id] = PlanRow(*row)
            self._saved_plans[plan_id] = ledger_sql.OF_PLANS.read(known)
        return known

    def job(self, job_id: int) -> JobRow:
        """The job, its mission locked: it stays as it is until the commit. Raises `NOT_FOUND`."""
        job = self._job(job_id)
        if not self.holds(job.mission_id):
            self.mission(job.mission_id)
            job = self._job(job_id)
        return job

    def result(self, job_id: int) -> str | None:
        """A job's result, in JSON."""
        self.write_results()
        row = self.tx.row(ledger_sql.RESULT, id=job_id)
        return None if row is None else row[0]

    def is_leased(self, lease: JobRow) -> bool:
        """True if the attempt that `lease` names still holds its job (R17). Raises `NOT_FOUND`."""
        job = self.job(lease.id)
        return job.state is State.RUNNING and job.attempt == lease.attempt

    def new_plan(
        self, mission_id: int, *, job_id: int | None, parent_id: int | None, depth: int,
        stated: str | None = None, on_failure: str | None = None,
    ) -> PlanRow:  # fmt: skip
        row = self.tx.row(
            ledger_sql.NEW_PLAN, mission_id=mission_id, job_id=job_id, parent_id=parent_id, depth=depth,
            stated=stated, on_failure=on_failure,
        )  # fmt: skip
        assert row is not None
        return self.plan(int(row[0]))

    def create(self, mission: MissionRow, new: NewJobRow) -> int:
        """Store a job; its id."""
        transition = CREATIONS[new.state]
        mission.count(new.state, 1)
        if new.plan_id is not None:
            self.plan(new.plan_id).count(new.state, 1)
        # Its event is the next one.
        ended = (self.tx.now, mission.events + 1) if new.state in SETTLED else (None, None)
        held_until = self._held_until(mission, new.state)
        values = (*_NEW_VALUES(new), mission.id, self.tx.now, *ended, held_until)
        given: dict[str, object] = dict(
            compress(zip(_NEW_COLUMNS, values, strict=True), map(_IS_GIVEN, values))
        )
        given["state"], given["role"] = new.state.value, new.role.value
        if new.reason is not None:
            given["reason"] = str(new.reason)
        if new.auto_dispatch is not None:
            given["auto_dispatch"] = int(new.auto_dispatch)
        job_id = self.tx.insert(ledger_sql.new_job(tuple(given)), given)
        self.note(mission, transition.event, job_id, _reasoned(new.reason))
        if new.state is State.QUEUED:
            self.tx.made_ready = True
        return job_id

    def move(
        self,
        job: JobRow,
        transition: Transition,
        *,
        reason: Reason | str | None = None,
        result: str | None = None,
        error: str | None = None,
        run_after: Micros | None = None,
        is_leased: bool = False,
        until: Micros | None = None,
        note: dict[str, JsonValue] | None = None,
    ) -> bool:
        """Take `job` through `transition` and write its event. False if the transition does not start from its state.

        `until` is when the job stopped running, if that was before now (a dead runner's last heartbeat).
        """
        mission = self.mission(job.mission_id)
        words = None if reason is None else str(reason)
        settled_seq = mission.events + 1 if transition.target in SETTLED else None
        params = ledger_sql.move_params(
            job,
            self.tx.now,
            settled_seq,
            reason=words,
            result=large_results.in_row(result),
            error=error,
            run_after=run_after,
            held_until=self._held_until(mission, transition.target),
        )
        if self.tx.run(ledger_sql.move(transition, is_leased), **params) != 1:
            return False
        if result is not None and large_results.is_large(result):
            self._large.append((job.id, result))
        self.count_move(job, transition, until)
        if job.followers:
            edges.count_awaited(self.tx, job, transition.target)
        self.note(mission, transition.event, job.id, _reasoned(reason) if note is None else note)
        if transition.target is State.QUEUED:
            self.tx.made_ready = True
        job.state, job.reason = transition.target, words
        return True

    def start_all(self, queued: Sequence[JobRow], runner_id: int) -> None:
        """Lease queued jobs to a runner. The transaction fails if one of them is not queued."""
        for job in queued:
            mission = self.mission(job.mission_id)
            self.count_move(job, START)
            self.note(mission, START.event, job.id)
            if mission.started_at is None:
                mission.started_at = self.tx.now
            job.state, job.attempt = START.target, job.attempt + 1
            job.runner_id, job.started_at = runner_id, self.tx.now
        self.tx.many(ledger_sql.STARTED, [(job.id, runner_id, self.tx.now) for job in queued])

    def succeed_all(self, outcomes: Sequence[tuple[JobRow, str]]) -> list[JobRow]:
        """Like `move` through `SUCCEED` for many leased jobs and their results; returns those with a valid lease."""
        # Only this transaction changes jobs of a locked mission: a lease found here is valid until the commit.
        self.lock(job.mission_id for job, _ in outcomes)
        runners = {job.runner_id for job, _ in outcomes}
        valid = {
            (row[0], row[1]) for runner in runners for row in self.tx.rows(ledger_sql.LEASES, runner=runner)
        }
        moved: list[JobRow] = []
        rows: list[Row] = []
        for job, result in outcomes:
            if (job.id, job.attempt) not in valid:
                continue
            valid.remove((job.id, job.attempt))
            self.count_move(job, SUCCEED)
            seq, kept = (
                self.note(self.mission(job.mission_id), SUCCEED.event, job.id),
                large_results.in_row(result),
            )
            rows.append((job.id, job.attempt, self.tx.now, seq, kept))
            if large_results.is_large(result):
                self._large.append((job.id, result))
            moved.append(job)
        self.tx.change_all(ledger_sql.SUCCEEDED, rows)
        for job in moved:
            if job.followers:
                edges.count_awaited(self.tx, job, SUCCEED.target)
            job.state, job.reason = SUCCEED.target, None
        return moved

    def count_move(self, job: JobRow, transition: Transition, until: Micros | None = None) -> None:
        """Update the counters for a job that goes through `transition`, and the mission's running time (R6)."""
        mission = self.mission(job.mission_id)
        were_running = mission.running
        mission.count(job.state, -1)
        mission.count(transition.target, 1)
        if job.plan_id is not None:
            plan = self.plan(job.plan_id)
            plan.count(job.state, -1)
            plan.count(transition.target, 1)
        if mission.running > 0 and were_running == 0:
            mission.running_since = self.tx.now
        elif were_running > 0 and mission.running == 0 and mission.running_since is not None:
            stopped = self.tx.now if until is None else min(until, self.tx.now)
            mission.ran += max(0, stopped - mission.running_since)
            mission.running_since = None

    def note(
        self,
        mission: MissionRow,
        event: str,
        job_id: int | None = None,
        data: dict[str, JsonValue] | None = None,
    ) -> int:
        """Append an event; its number."""
        mission.events += 1
        text = None if data is None else to_json(data)
        self._events.append((mission.id, mission.events, job_id, self.tx.now, event, text))
        return mission.events

    def attempted(
        self,
        job: JobRow,
        outcome: str,
        error: str | None = None,
        tokens: tuple[int, int] | None = None,
        *,
        stderr: str | None = None,
    ) -> None:
        """Write the row of an attempt that ended (R19); `tokens` are input and output of a question without a reply.

        `stderr` is the end of what the program of an attempt that succeeded wrote there.
        """
        input_tokens, output_tokens = tokens or (None, None)
        began = job.started_at or self.tx.now
        ended = (self.tx.now, outcome, error, input_tokens, output_tokens)
        row = (job.id, job.attempt, job.runner_id, began, *ended)
        if stderr is None:
            self._attempts.append(row)
        else:
            self._attempts_with_stderr.append((*row, stderr))

    def write_events(self) -> None:
        """Write the events so far, to be read in this transaction."""
        self.tx.many(ledger_sql.EVENT, self._events)
        self._events.clear()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """A savepoint: nothing stays of what was written and noted before it raised. No job may be moved in it."""
        self.write_events()
        self.tx.query_plain("SELECT 1")  # errors of what was sent before are not its own
        counted = {mission.id: mission.events for mission in self._missions.values()}
        self.tx.plain("SAVEPOINT apart")
        try:
            yield
            self.write_events()
            self.tx.query_plain("SELECT 1")
        except Exception:
            self._events.clear()
            for mission in self._missions.values():
                mission.events = counted.get(mission.id, mission.events)
            self.tx.plain("ROLLBACK TO SAVEPOINT apart")
            raise
        self.tx.plain("RELEASE SAVEPOINT apart")

    def write_results(self) -> None:
        """Write the large results so far, to be read in this transaction.

        Otherwise they come last: a transaction that waits for another's result has all its other locks, so that no
        two transactions wait for each other.
        """
        large_results.keep(self.tx, self._large)
        self._large.clear()

    def close(self) -> None:
        """Write what was collected. Called at the end of the transaction."""
        self.write_results()
        self.tx.many(ledger_sql.ATTEMPT, self._attempts)
        if self._attempts_with_stderr:
            self.tx.many(ledger_sql.ATTEMPT_WITH_STDERR, self._attempts_with_stderr)
        self.write_events()
        for plan in self._plans.values():
            self._save(ledger_sql.OF_PLANS.changes(plan, self._saved_plans[plan.id]))
        for mission in self._missions.values():
            self._save(ledger_sql.OF_MISSIONS.changes(mission, self._saved_missions[mission.id]))

    def _save(self, changes: tuple[Statement, dict[str, object]] | None) -> None:
        if changes is not None:
            self.tx.send(changes[0], **changes[1])

    def _keep(self, row: Row) -> MissionRow:
        mission = MissionRow(*row)
        if mission.pruned_at is not None:
            raise was_pruned(mission.id, mission.pruned_at)
        self._missions[mission.id] = mission
        self._saved_missions[mission.id] = ledger_sql.OF_MISSIONS.read(mission)
        self._highest = max(self._highest, mission.id)
        return mission

    def _job(self, job_id: int) -> JobRow:
        row = self.tx.row(ledger_sql.JOB, id=job_id)
        if row is None:
            raise LcpError(ErrorCode.NOT_FOUND, f"job {job_id} is not in the database")
        return job_row(row)

    def _held_until(self, mission: MissionRow, state: State) -> Micros | None:
        """When a job that is held now is rejected if no decision is made."""
        seconds = hold_seconds(mission.spec) if state is State.HELD else None
        return None if seconds is None else self.tx.now + int(seconds * SECOND)


def _reasoned(reason: Reason | str | None) -> dict[str, JsonValue] | None:
    if isinstance(reason, Reason):
        return reason.record
    return None if reason is None else {"reason": reason}
