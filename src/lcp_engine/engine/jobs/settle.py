"""Settle attempts: success, failure with retry, hold, release, rescue (R10, R17 to R19)."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import assert_never

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.decisions import End, Outcome
from lcp_engine.core.job_states import BACK_OFF, FAIL, HOLD_AGAIN, RESCUE, SUCCEED
from lcp_engine.engine.failure import agent_error, paid_tokens
from lcp_engine.engine.jobs.outcome import Succeeded
from lcp_engine.engine.plans.progress import after_holding, after_settling, end_plan, refresh
from lcp_engine.engine.plans.turn_queue import acting_plan
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.row_types import JobRow, RunnerRow
from lcp_engine.workers.base import Hold

MAX_DEATHS = 5
MAX_BACKOFF = 300.0


@dataclass(frozen=True)
class Settling:
    """What an attempt came to. `backoff` is the first wait before a retry, in seconds."""

    job: JobRow
    outcome: Succeeded | Failed | Hold
    backoff: float = 1.0


def settle_all(ledger: Ledger, settlings: Sequence[Settling], jitter: random.Random) -> None:
    """Like `settle` for each, in their order; successes of a plan that follow each other are written together."""
    for (are_plain, _), group in groupby(settlings, lambda one: (_is_plain(one), one.job.plan_id)):
        together = list(group)
        if are_plain and len(together) > 1:
            _succeed_all(ledger, together)
        else:
            for settling in together:
                settle(ledger, settling, jitter)


def settle(ledger: Ledger, settling: Settling, jitter: random.Random) -> bool:
    """Settle an attempt, and move its plan on. False where its lease was lost: then nothing is written."""
    job = settling.job
    mission = ledger.mission(job.mission_id)
    match settling.outcome:
        case Succeeded(result, written):
            if not ledger.move(job, SUCCEED, result=result, is_leased=True):
                return False
            ledger.attempted(job, SUCCEED.event)
            if written is not None:
                mission.bytes_written += written
                mission.changed_seq = mission.events
            after_settling(ledger, job)
        case Hold(reason):
            if not ledger.move(job, HOLD_AGAIN, reason=reason, is_leased=True):
                return False
            ledger.attempted(job, HOLD_AGAIN.event)
            if job.plan_id is not None and not mission.has_ended:
                after_holding(ledger, ledger.plan(job.plan_id))
            refresh(ledger, mission)
        case Failed() as failed:
            return _fail(ledger, job, failed, settling.backoff, jitter)
        case _:
            assert_never(settling.outcome)
    return True


def rescue(ledger: Ledger, job: JobRow, runner: RunnerRow, *, has_started: bool) -> bool:
    """Take a job back from a runner that died; too many deaths fail it (R17)."""
    if has_started:
        job.deaths += 1
    reason = f"runner {runner.id} (pid {runner.pid}) died"
    if job.deaths >= MAX_DEATHS:
        message = f"job {job.id} ({job.kind}) was running in {job.deaths} runners that died; {MAX_DEATHS} are too many"
        return _give_up(ledger, job, Failed(ErrorCode.RUNNER_DIED, message))
    if not ledger.move(job, RESCUE, reason=reason, is_leased=True, until=runner.alive_until):
        return False
    if has_started:
        ledger.attempted(job, RESCUE.event)
    return True


def _is_plain(settling: Settling) -> bool:
    """Whether it is a success that changed no file."""
    return isinstance(settling.outcome, Succeeded) and settling.outcome.written_bytes is None


def _succeed_all(ledger: Ledger, settlings: Sequence[Settling]) -> None:
    moved = ledger.succeed_all(
        [(one.job, one.outcome.result) for one in settlings if isinstance(one.outcome, Succeeded)]
    )
    for job in moved:
        ledger.attempted(job, SUCCEED.event)
    for job in moved if settlings[0].job.plan_id is not None else _last_of_missions(moved):
        after_settling(ledger, job)


def _last_of_missions(jobs: Sequence[JobRow]) -> Collection[JobRow]:
    """Of jobs without a plan, one of each mission: it goes on the same after all of them as after each."""
    return {job.mission_id: job for job in jobs}.values()


def _fail(ledger: Ledger, job: JobRow, failed: Failed, backoff: float, jitter: random.Random) -> bool:
    job.failures += 1
    if not failed.meaning.retry or job.failures >= job.max_attempts:
        return _give_up(ledger, job, failed)
    mission = ledger.mission(job.mission_id)
    wait = min(MAX_BACKOFF, backoff * 2.0 ** (job.failures - 1)) * jitter.uniform(0.75, 1.25)
    error = agent_error(failed, mission.uid, ledger.tx.now)
    run_after: Micros = ledger.tx.now + int(wait * SECOND)
    if not ledger.move(job, BACK_OFF, reason=failed.code, error=error, run_after=run_after, is_leased=True):
        return False
    ledger.attempted(job, BACK_OFF.event, error, _paid(job, failed))
    return True


def _give_up(ledger: Ledger, job: JobRow, failed: Failed) -> bool:
    mission = ledger.mission(job.mission_id)
    error = agent_error(failed, mission.uid, ledger.tx.now)
    if not ledger.move(job, FAIL, error=error, is_leased=True):
        return False
    ledger.attempted(job, FAIL.event, error, _paid(job, failed))
    if job.role == "work":
        after_settling(ledger, job, error)
        return True
    if mission.asking == job.id:
        mission.asking = None
    if not mission.has_ended:
        message = f"turn {job.id} got no reply: {failed.message}"
        end_plan(
            ledger, acting_plan(ledger, job), End(Outcome.JOB_FAILED, succeeded=False, message=message), error
        )
    if job.role == "step":
        after_settling(ledger, job, error)
    refresh(ledger, mission)
    return True


def _paid(job: JobRow, failed: Failed) -> tuple[int, int] | None:
    """What a turn cost that got no reply; work has no tokens, whatever its details say."""
    return None if job.role == "work" else paid_tokens(failed)
