"""Settle finished jobs: success, failure and retry, hold, reply of a planner, death of a runner (R10, R17 to R19)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias, assert_never

from pydantic import BaseModel, JsonValue

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.decide import End, Outcome, end_on_limit, limit_reached
from lcp_engine.core.job_states import BACK_OFF, FAIL, HOLD_AGAIN, RESCUE, SUCCEED, Role, State
from lcp_engine.core.kinds import UNDO
from lcp_engine.core.limits.terms import terms_of
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.engine.failure import WAITED, agent_error, failure_of, paid_tokens
from lcp_engine.engine.outcome import HeldRequest, Succeeded, failure_from_exception, storable_failure
from lcp_engine.engine.points import Store, asker_of, observers
from lcp_engine.engine.progress import after_holding, after_settling, end_plan, refresh, usage_of
from lcp_engine.engine.question import seconds_left
from lcp_engine.engine.reply import FinishedTurn, apply_reply
from lcp_engine.engine.turn_queue import acting_plan
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError
from lcp_engine.feature import load
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.people import see
from lcp_engine.store.queries.held_jobs import NO_PERSON
from lcp_engine.store.row_types import JobRow, RunnerRow
from lcp_engine.store.turns import question_of
from lcp_engine.workers.base import Hold, Worker

MAX_DEATHS = 5
MAX_BACKOFF = 300.0
"""Seconds."""


@dataclass(frozen=True)
class FinishedJob:
    """A leased job and its outcome. `backoff` is the delay before the first retry, in seconds."""

    job: JobRow
    outcome: Succeeded | Failed | Hold
    backoff: float = 1.0


Finished: TypeAlias = FinishedJob | FinishedTurn


def finish(job: JobRow, worker: Worker[BaseModel], outcome: Succeeded | Hold | Failed) -> FinishedJob:
    """The outcome of an attempt, with the backoff of its worker."""
    return FinishedJob(job, outcome, worker.backoff)


def finish_raised(job: JobRow, worker: Worker[BaseModel], error: BaseException) -> FinishedJob:
    """The failure of an attempt that raised. Re-raises database errors: they are not the job's fault."""
    if not isinstance(error, LcpError):
        return finish(job, worker, failure_from_exception(label(job), error))
    failed = storable_failure(label(job), error.failed)
    if failed.code in OF_DATABASE:
        raise error
    return finish(job, worker, failed)


def label(job: JobRow) -> str:
    """Name of a job in error messages."""
    return f"job {job.id} ({job.kind})"


def settle_finished(ledger: Ledger, finished: Iterable[Finished], jitter: random.Random) -> None:
    """Settle jobs and turns in their order, in this transaction; each whose lease was lost drops out alone."""
    waiting: list[FinishedJob] = []
    for one in finished:
        job = one.job.copy()
        match one:
            case FinishedJob(_, outcome, backoff):
                waiting.append(FinishedJob(job, outcome, backoff))
            case FinishedTurn():
                settle_all(ledger, waiting, jitter)
                waiting.clear()
                apply_reply(ledger, replace(one, job=job))
            case _:
                assert_never(one)
    settle_all(ledger, waiting, jitter)


def settle_all(ledger: Ledger, finished: Sequence[FinishedJob], jitter: random.Random) -> None:
    """Like `settle` for each, in their order; consecutive plain successes of one plan are written together."""
    for (are_plain, _), group in groupby(finished, lambda one: (_is_plain(one), one.job.plan_id)):
        together = list(group)
        if are_plain and len(together) > 1:
            _succeed_all(ledger, together)
        else:
            for one in together:
                settle(ledger, one, jitter)


def settle(ledger: Ledger, finished: FinishedJob, jitter: random.Random) -> bool:
    """Settle an attempt and advance its plan. False if its lease was lost: nothing is written then."""
    job = finished.job
    mission = ledger.mission(job.mission_id)
    match finished.outcome:
        case Succeeded(result, written, stderr, stored, request):
            if stored is not None and ledger.is_leased(job):
                refused = load(stored.stored_by, Store).keep(ledger, job, stored)
                if refused is not None:
                    return _fail(ledger, job, refused, finished.backoff, jitter)
            result = _with_request(ledger, job, result, request)
            if not ledger.move(job, SUCCEED, result=result, is_leased=True):
                return False
            ledger.attempted(job, SUCCEED.event, stderr=stderr)
            if written is not None:
                mission.bytes_written += written
                mission.changed_seq = mission.events
            after_settling(ledger, job)
            _tell_of_undo(ledger, job)
        case Hold(reason):
            if not ledger.move(job, HOLD_AGAIN, reason=reason, is_leased=True):
                return False
            ledger.attempted(job, HOLD_AGAIN.event)
            if job.plan_id is not None and not mission.has_ended:
                after_holding(ledger, ledger.plan(job.plan_id))
            refresh(ledger, mission)
        case Failed() as failed:
            return _fail(ledger, job, failed, finished.backoff, jitter)
        case _:
            assert_never(finished.outcome)
    return True


def _tell_of_undo(ledger: Ledger, job: JobRow) -> None:
    for one in observers() if job.kind == UNDO else ():
        one.undone(ledger, job)


def rescue(
    ledger: Ledger, job: JobRow, runner: RunnerRow, *, has_started: bool, is_charged: bool = True
) -> bool:
    """Requeue a job whose runner died; after `MAX_DEATHS` deaths it fails (R17).

    A runner that is only suspended has not died: the job is not charged with a death.
    """
    if has_started and is_charged:
        job.deaths += 1
    reason = because(ReasonCode.RUNNER_DIED, runner=runner.id, pid=runner.pid)
    if job.deaths >= MAX_DEATHS:
        message = f"{label(job)} was running in {job.deaths} runners that died; at most {MAX_DEATHS - 1} may"
        return _give_up(ledger, job, Failed(ErrorCode.RUNNER_DIED, message))
    if not ledger.move(job, RESCUE, reason=reason, is_leased=True, until=runner.alive_until):
        return False
    if has_started:
        ledger.attempted(job, RESCUE.event)
    return True


def _is_plain(finished: FinishedJob) -> bool:
    """True if it is a success that changed no file, stores nothing but its result and requests no job."""
    outcome = finished.outcome
    if not isinstance(outcome, Succeeded):
        return False
    return outcome.written_bytes is None and outcome.stored is None and outcome.request is None


def _with_request(ledger: Ledger, job: JobRow, result: str, request: HeldRequest | None) -> str:
    """Store the job that a leased one requests of a person; the result that names it."""
    if request is None or not ledger.is_leased(job):
        return result
    new = NewJobRow(
        plan_id=job.plan_id,
        turn=job.turn,
        parent_id=job.id,
        name=request.name,
        kind=request.kind,
        params=to_json(request.params),
        state=State.HELD,
        reason=request.reason,
        depth=job.depth,
        max_attempts=request.max_attempts,
    )
    job_id = ledger.create(ledger.mission(job.mission_id), new)
    see(ledger.tx, job_id, NO_PERSON, request.sight)
    return result if request.key is None else to_json({**from_json(result), request.key: job_id})


def _succeed_all(ledger: Ledger, finished: Sequence[FinishedJob]) -> None:
    moved = ledger.succeed_all(
        [(one.job, one.outcome.result) for one in finished if isinstance(one.outcome, Succeeded)]
    )
    said = {one.job.id: one.outcome.stderr for one in finished if isinstance(one.outcome, Succeeded)}
    for job in moved:
        ledger.attempted(job, SUCCEED.event, stderr=said[job.id])
    for job in _followed(ledger, moved):
        after_settling(ledger, job)


def _followed(ledger: Ledger, succeeded: Sequence[JobRow]) -> Iterable[JobRow]:
    """The jobs, all of one plan or of none, after which something may follow.

    Jobs without followers that answer no question are equal: the first of a mission leaves nothing to do after others.
    """
    if succeeded and succeeded[0].plan_id is not None:
        spec = spec_of(ledger.mission(succeeded[0].mission_id).spec)
        if spec.continue_ == "per_result":
            return succeeded
    first: dict[tuple[int, int], JobRow] = {}
    for job in succeeded:
        is_alone = job.followers or asker_of(job.kind) is not None
        first.setdefault((job.mission_id, job.id if is_alone else 0), job)
    return first.values()


def _fail(ledger: Ledger, job: JobRow, failed: Failed, backoff: float, jitter: random.Random) -> bool:
    if failed.code is ErrorCode.WORKER_DIED:  # not charged, like the death of a runner
        job.deaths += 1
        times, is_last = job.deaths, job.deaths >= MAX_DEATHS
    else:
        job.failures += 1
        times = job.failures
        is_last = not _may_retry(job, failed) or job.failures >= job.max_attempts
    if is_last or _has_had_last_turn(ledger, job, failed):
        return _give_up(ledger, job, failed)
    mission = ledger.mission(job.mission_id)
    stated = None if job.terms is None else terms_of(job.terms).delay_ms
    wait = min(MAX_BACKOFF, backoff * 2.0 ** (times - 1)) * jitter.uniform(0.75, 1.25)
    wait = wait if stated is None else stated / 1000
    error = agent_error(failed, mission.uid, ledger.tx.now)
    run_after: Micros = ledger.tx.now + int(wait * SECOND)
    if not ledger.move(job, BACK_OFF, reason=failed.code, error=error, run_after=run_after, is_leased=True):
        return False
    ledger.attempted(job, BACK_OFF.event, error, _paid(job, failed))
    return True


def _may_retry(job: JobRow, failed: Failed) -> bool:
    """True if another attempt may succeed, or the operator's plan wants one and something was executed."""
    if job.role is not Role.WORK and WAITED in failed.details:
        return False
    if job.terms is None or not terms_of(job.terms).retries:
        return failed.meaning.retry
    return failed.meaning.is_executed


def _has_had_last_turn(ledger: Ledger, job: JobRow, failed: Failed) -> bool:
    """True if it was the last turn, and its time is over or tokens were paid for it: both are granted once (R6)."""
    turn = None if job.role is Role.WORK else question_of(ledger.tx, job.id)
    if turn is None or turn.last_turn is None:
        return False
    left = seconds_left(ledger.mission(job.mission_id), turn, ledger.tx.now)
    return left == 0 or paid_tokens(failed) is not None


def _limit_of(ledger: Ledger, job: JobRow, failed: Failed) -> str | None:
    """The limit that a mission reached while its own plan waited for this reply; None if that is not why it ends."""
    mission = ledger.mission(job.mission_id)
    turn = (
        None if job.role is Role.WORK or job.plan_id != mission.root_plan else question_of(ledger.tx, job.id)
    )
    if turn is None or turn.last_turn is not None:
        return None if turn is None else turn.last_turn
    used = usage_of(mission, ledger.tx.now)
    asked_before = replace(used, turns=used.turns - 1)
    return limit_reached(spec_of(mission.spec).limits, asked_before) if failed.meaning.retry else None


def _give_up(ledger: Ledger, job: JobRow, failed: Failed) -> bool:
    mission = ledger.mission(job.mission_id)
    limit = _limit_of(ledger, job, failed)
    error = agent_error(failed, mission.uid, ledger.tx.now)
    note: dict[str, JsonValue] | None = None if limit is None else {"limit": limit}
    if not ledger.move(job, FAIL, error=error, is_leased=True, note=note):
        return False
    ledger.attempted(job, FAIL.event, error, _paid(job, failed))
    if job.role is Role.WORK:
        after_settling(ledger, job, error)
        return True
    if mission.asking == job.id:
        mission.asking = None
    if not mission.has_ended:
        message = f"turn {job.id} got no reply: {failed.message}"
        end = End(Outcome.JOB_FAILED, succeeded=False, message=message)
        if limit is not None:
            end = end_on_limit(limit, message)
            error = agent_error(failure_of(end, mission.id), mission.uid, ledger.tx.now)
        end_plan(ledger, acting_plan(ledger, job), end, error)
    if job.role is Role.STEP:
        after_settling(ledger, job, error)
    refresh(ledger, mission)
    return True


def _paid(job: JobRow, failed: Failed) -> tuple[int, int] | None:
    """The tokens spent on a turn that got no reply; None for work, which spends none."""
    return None if job.role is Role.WORK else paid_tokens(failed)
