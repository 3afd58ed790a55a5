"""Do attempts of jobs again: how each began, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lcp_engine.core.job_states import (
    BACK_OFF,
    CANCEL,
    DELEGATE,
    FAIL,
    HOLD,
    HOLD_AGAIN,
    QUEUE,
    RELEASE,
    RESCUE,
    START,
    SUCCEED,
    State,
)
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.settle import rescue
from lcp_engine.errors import ErrorCode, Failed, Json
from lcp_engine.replay import turns
from lcp_engine.replay.missions import CANCELLED_BY, cancel
from lcp_engine.replay.scratch import Scratch, Strayed
from lcp_engine.store import queue
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.queries.archive import Archive, PastEvent, PastJob
from lcp_engine.store.row_types import JobRow, RunnerRow
from lcp_engine.workers.base import Hold

_CREATED = {QUEUE.event: State.QUEUED, HOLD.event: State.HELD}
_NOT_CONCLUDED = (ErrorCode.TIMEOUT, ErrorCode.RUNNER_DIED, ErrorCode.PLANNER_FAILED)
"""Errors of a turn that say nothing about its reply, though one may be stored."""


def _enqueue(scratch: Scratch, event: PastEvent) -> None:
    """A job that neither planner nor loop asked for: somebody put it into the mission."""
    past = scratch.known(event)
    if past.role != "work" or past.fingerprint is not None or past.parent_id is not None:
        return
    if scratch.site.database.read(lambda tx: queue.find_jobs(tx, [scratch.ids[past.id]])):
        return
    reason = event.data.get("reason")

    def put(ledger: Ledger) -> None:
        mission = ledger.mission(scratch.mission_id)
        ledger.create(
            mission,
            NewJobRow(
                plan_id=None if past.plan_id is None else mission.root_plan,
                name=past.name,
                kind=past.kind,
                params=past.params,
                state=_CREATED[event.event],
                reason=None if reason is None else str(reason),
                priority=past.priority,
                run_after=past.run_after,
                max_attempts=past.max_attempts,
            ),
        )

    scratch.books(put)


def _start(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.known(event)

    def start(ledger: Ledger) -> None:
        job = scratch.job(ledger.tx, past)
        if job.state is not State.QUEUED:
            raise Strayed(f"job {past.id} ({past.kind}) was started; now it is {job.state}")
        ledger.start_all([job], scratch.runner_id)

    scratch.books(start)


def _end(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.known(event)
    job = scratch.leased(past)
    if past.role == "work" and event.event == SUCCEED.event:
        _succeed(scratch, past, job, is_copied=event.seq < _forked_seq(scratch.past))
        return
    failed = None if event.event in (SUCCEED.event, DELEGATE.event) else _failure(scratch.past, past, job)
    has_reply = past.role != "work" and past.id in scratch.replied
    if failed is None or (has_reply and failed.code not in _NOT_CONCLUDED):
        turns.finish_turn(scratch, past, job)
    else:
        turns.pay(scratch, past, job, failed)
        scratch.settle(job, failed)


def _succeed(scratch: Scratch, past: PastJob, job: JobRow, *, is_copied: bool) -> None:
    if job.params != past.params and from_json(job.params) != from_json(past.params):
        raise Strayed(f"job {past.id} ({past.kind}) has other params now, for which no result is known")
    change = next((change for change in scratch.applied if change.job_id == past.id), None)
    if change is not None:
        scratch.change(past, job, change)
        return
    worker = scratch.site.bench.workers.get(past.kind)
    # A fork has the jobs of the mission it comes from, and not their changes of files.
    has_written = is_copied and worker is not None and worker.writes
    scratch.settle(job, Succeeded(past.result or "{}", 0 if has_written else None))


def _forked_seq(history: Archive) -> int:
    return max((event.seq for event in history.events if event.event == "forked"), default=0)


def _failure(history: Archive, past: PastJob, job: JobRow) -> Failed:
    """Why the attempt failed, as it was stored."""
    attempt = history.attempts.get((past.id, job.attempt))
    stored: dict[str, Json] = json.loads((attempt.error if attempt else None) or past.error or "{}")
    code = stored.get("error_code")
    known = ErrorCode(code) if code in set(ErrorCode) else ErrorCode.WORKER_FAILED
    details = stored.get("technical_details")
    told = details if isinstance(details, Mapping) else {}
    return Failed(known, str(stored.get("user_message", "")), told)


def _hold_again(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.known(event)
    job = scratch.leased(past)
    if past.role == "work" or not turns.relay(scratch, job):
        scratch.settle(job, Hold(str(event.data.get("reason", ""))))


def _release(scratch: Scratch, event: PastEvent) -> None:
    job = scratch.leased(scratch.known(event))
    reason = str(event.data.get("reason", ""))
    scratch.books(lambda ledger: queue.release(ledger, job.copy(), reason))


def _rescue(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.known(event)
    job = scratch.leased(past)
    attempt = scratch.past.attempts.get((past.id, job.attempt))
    alive = event.at if attempt is None or attempt.alive_until is None else attempt.alive_until
    runner = RunnerRow(scratch.runner_id, "replay", "", "", 0, alive)
    scratch.books(lambda ledger: rescue(ledger, job.copy(), runner, has_started=attempt is not None))


def _cancel(scratch: Scratch, event: PastEvent) -> None:
    """A turn that nobody needs any more drops out when it is asked; else a person cancelled what was left."""
    job = scratch.current(scratch.known(event))
    reason = str(event.data.get("reason", ""))
    if job.state is State.CANCELLED:
        return
    if reason.startswith(CANCELLED_BY):
        cancel(scratch, reason)
    elif job.state is State.RUNNING:
        turns.drop_out(scratch, job, reason)


ACTS = {
    QUEUE.event: _enqueue,
    HOLD.event: _enqueue,
    START.event: _start,
    SUCCEED.event: _end,
    FAIL.event: _end,
    DELEGATE.event: _end,
    BACK_OFF.event: _end,
    HOLD_AGAIN.event: _hold_again,
    RELEASE.event: _release,
    RESCUE.event: _rescue,
    CANCEL.event: _cancel,
}
