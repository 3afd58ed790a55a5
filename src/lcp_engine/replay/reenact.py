"""Do again what a history tells, event by event.

The history is the schedule: leases, replies, ends of attempts and decisions of people are taken from it in its order,
and everything that follows from them (new jobs, turns, holds, the mission's end) is left to the engine of today.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from lcp_engine.clock import SECOND
from lcp_engine.core.decide import FailedCheck
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
    Role,
    State,
)
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.reasons import ReasonCode, recorded, stated
from lcp_engine.engine.failure import paid_tokens
from lcp_engine.engine.missions import steer
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.people import approve
from lcp_engine.engine.people.answer import answer
from lcp_engine.engine.people.message import say
from lcp_engine.engine.plans.progress import usage_of
from lcp_engine.engine.plans.turn_queue import acting_plan
from lcp_engine.engine.question import (
    bring_reply,
    hold_turn,
    keep_cost,
    keep_reply,
    new_question,
    open_question,
)
from lcp_engine.engine.settle import FinishedTurn, rescue
from lcp_engine.errors import ErrorCode, Failed, Json, LcpError
from lcp_engine.replay.scratch import HistoryClock, Scratch, Strayed
from lcp_engine.store import queue
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.people import SAID
from lcp_engine.store.queries.archive import Archive, PastEvent, PastJob
from lcp_engine.store.row_types import JobRow, RunnerRow
from lcp_engine.store.turns import StoredReply, question, question_of
from lcp_engine.workers.base import Hold

_CREATED = {QUEUE.event: State.QUEUED, HOLD.event: State.HELD}
_NOT_CONCLUDED = (ErrorCode.TIMEOUT, ErrorCode.RUNNER_DIED, ErrorCode.PLANNER_FAILED)
"""Errors of a turn that say nothing about its reply, though one may be stored."""


def reenact(scratch: Scratch, clock: HistoryClock) -> tuple[PastEvent, str] | None:
    """Do everything; the event that could not be done and why, where the mission took another way."""
    events = scratch.past.events
    clock.now = events[0].at
    _launch(scratch)
    for event in events:
        clock.now = event.at
        act = _ACTS.get(event.event)
        if act is None:
            continue
        try:
            act(scratch, event)
        except (Strayed, LcpError) as refused:
            return event, str(refused)
    return None


def _launch(scratch: Scratch) -> None:
    """Launch the mission with the limits of then, over the files of then."""
    past = scratch.past
    spec = spec_of(past.spec)
    if past.root is not None:
        # The planner may have called the root by its name of then.
        spec = spec.model_copy(update={"root_aliases": (*spec.root_aliases, past.root)})
    spec = spec.model_copy(update={"limits": spec.limits.model_copy(update=_first_limits(past))})

    def launch_it(ledger: Ledger) -> None:
        scratch.mission_id = steer.launch(ledger, spec, Path(scratch.root.path))
        scratch.runner_id = queue.add_runner(ledger.tx, uid="replay", host="", boot="", pid=0)

    scratch.books(launch_it)
    first = {change.path: change.sha256_before for change in reversed(scratch.applied)}
    for path, sha in first.items():
        scratch.restore(path, sha)


def _cancel_mission(scratch: Scratch, by: str) -> None:
    scratch.books(lambda ledger: steer.cancel(ledger, scratch.mission_id, by=by))


def _first_limits(past: Archive) -> dict[str, JsonValue]:
    """The limits that the mission was launched with, where resuming changed them."""
    first: dict[str, JsonValue] = {}
    for event in past.events:
        before = event.data.get("before")
        if event.event == "resumed" and isinstance(before, dict):
            first = {**before, **first}
    return first


def _end_by_cancel(scratch: Scratch, event: PastEvent) -> None:
    _cancel_mission(scratch, str(event.data.get("by", "")))


def _resume(scratch: Scratch, event: PastEvent) -> None:
    limits = event.data.get("limits")
    given = limits if isinstance(limits, dict) else {}
    by = str(event.data.get("by"))
    scratch.books(lambda ledger: steer.resume(ledger, scratch.mission_id, given, by=by))


def _fork(scratch: Scratch, event: PastEvent) -> None:
    """Whoever forks begins anew with what counts in a row."""

    def fork(ledger: Ledger) -> None:
        for (plan_id,) in ledger.tx.query_plain("SELECT id FROM plans"):
            plan = ledger.plan(int(plan_id))
            plan.corrections = plan.stalled = plan.refused = 0
        mission = ledger.mission(scratch.mission_id)
        ledger.note(mission, event.event, None, event.data)
        mission.changed_seq = _number(event.data.get("changed_seq"))
        mission.bytes_written = _number(event.data.get("bytes_written"))

    scratch.books(fork)


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0


def _finish_turn(scratch: Scratch, event: PastEvent, past: PastJob, job: JobRow) -> None:
    """Read the stored reply and do what follows; an attempt that finds the reply to its question uses it (R21)."""
    if past.id not in scratch.replied:
        raise Strayed(f"job {past.id} ({past.kind}) has no reply in the history")
    finished = scratch.execute(past, job)
    if isinstance(finished, FinishedTurn):
        checks = _failed_checks(scratch, event, finished.failed_checks)
        finished = replace(finished, failed_checks=checks)
    if finished is not None:
        scratch.settle_finished(finished)


def _pay(scratch: Scratch, past: PastJob, job: JobRow, failed: Failed) -> None:
    """Count what a question cost that got no reply."""
    tokens = None if past.role is Role.WORK else paid_tokens(failed)
    if tokens is None:
        return
    asked = scratch.site.database.read(lambda tx: question_of(tx, job.id))
    if asked is not None:
        scratch.books(lambda ledger: keep_cost(ledger, asked, tokens))


def _relay(scratch: Scratch, job: JobRow) -> bool:
    """Hold a turn whose question was relayed to a person; False where the job asked none."""
    asked = scratch.site.database.read(lambda tx: question_of(tx, job.id))
    if asked is None:
        return False
    prompt = scratch.past.turns[asked.number].prompt or ""
    scratch.books(lambda ledger: hold_turn(ledger, job.copy(), asked, prompt))
    return True


def _drop_out(scratch: Scratch, job: JobRow, limit: JsonValue) -> None:
    """Open the question of a turn that nobody needs any more."""

    def ask(ledger: Ledger) -> None:
        _take_the_time_of_then(scratch, ledger, limit)
        open_question(ledger, job.copy())

    scratch.books(ask)


def _ask(scratch: Scratch, event: PastEvent) -> None:
    job = scratch.current(scratch.known(event))
    limit = event.data.get("last_turn")

    def ask(ledger: Ledger) -> None:
        _take_the_time_of_then(scratch, ledger, limit)
        if job.state is State.QUEUED:  # a fork was given the reply before anybody took the turn
            mission, plan = ledger.mission(scratch.mission_id), acting_plan(ledger, job)
            new_question(ledger, job, mission, plan, from_json(job.params))
        else:
            open_question(ledger, job.copy())

    scratch.books(ask)


def _take_the_time_of_then(scratch: Scratch, ledger: Ledger, limit: JsonValue) -> None:
    """Seconds of running time are measured: whether they were used up is what the history says."""
    mission = ledger.mission(scratch.mission_id)
    most = spec_of(mission.spec).limits.max_seconds
    if most is None:
        return
    used = usage_of(mission, ledger.tx.now).seconds
    if limit == "max_seconds" and used < most:
        mission.ran += int((most - used) * SECOND) + 1
    elif limit != "max_seconds" and used >= most:
        mission.ran, mission.running_since = 0, ledger.tx.now


def _reply(scratch: Scratch, event: PastEvent) -> None:
    number = event.data.get("question")
    past = scratch.past.turns.get(number) if isinstance(number, int) else None
    if past is None or past.reply is None:
        raise Strayed(f"the reply to question {number} is not in the history")
    reply = StoredReply(past.reply, past.prompt, past.input_tokens, past.output_tokens, past.latency or 0.0)

    def keep(ledger: Ledger) -> None:
        turn = question(ledger.tx, scratch.mission_id, past.number)
        if turn is None:
            raise Strayed(f"question {past.number} was not asked")
        keep_reply(ledger, turn, reply)

    scratch.books(keep)
    scratch.replied.add(past.job_id)


def _failed_checks(
    scratch: Scratch, event: PastEvent, found: tuple[FailedCheck, ...]
) -> tuple[FailedCheck, ...]:
    """The failed acceptance checks of a turn: `found` for files that the mission wrote, the others as recorded."""
    written = {change.path for change in scratch.applied}
    recorded_then = _recorded_checks(event)
    failed: list[FailedCheck] = []
    for index, check in enumerate(spec_of(scratch.past.spec).accept):
        source = found if check.path in written else recorded_then
        failed += [one for one in source if one.check == index]
    return tuple(failed)


def _recorded_checks(event: PastEvent) -> list[FailedCheck]:
    listed = event.data.get("failed_checks")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return [FailedCheck(_number(entry.get("check")), str(entry.get("fact"))) for entry in entries]


def _enqueue(scratch: Scratch, event: PastEvent) -> None:
    """A job that neither planner nor loop asked for: somebody put it into the mission."""
    past = scratch.known(event)
    if past.role is not Role.WORK or past.fingerprint is not None or past.parent_id is not None:
        return
    if scratch.site.database.read(lambda tx: queue.find_jobs(tx, [scratch.ids[past.id]])):
        return
    reason = recorded(event.data)

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
                reason=reason,
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
    if past.role is Role.WORK and event.event == SUCCEED.event:
        _succeed(scratch, past, job, is_copied=event.seq < _forked_seq(scratch.past))
        return
    failed = None if event.event in (SUCCEED.event, DELEGATE.event) else _failure(scratch.past, past, job)
    has_reply = past.role is not Role.WORK and past.id in scratch.replied
    if failed is None or (has_reply and failed.code not in _NOT_CONCLUDED):
        _finish_turn(scratch, event, past, job)
    else:
        _pay(scratch, past, job, failed)
        scratch.settle(job, failed)


def _succeed(scratch: Scratch, past: PastJob, job: JobRow, *, is_copied: bool) -> None:
    if job.params != past.params and from_json(job.params) != from_json(past.params):
        raise Strayed(f"job {past.id} ({past.kind}) has other params now, for which no result is known")
    change = next((change for change in scratch.applied if change.job_id == past.id), None)
    if change is not None:
        scratch.change(past, job, change)
        return
    worker = scratch.site.admission.workers.get(past.kind)
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
    if past.role is Role.WORK or not _relay(scratch, job):
        scratch.settle(job, Hold(recorded(event.data) or ""))


def _release(scratch: Scratch, event: PastEvent) -> None:
    job = scratch.leased(scratch.known(event))
    reason = recorded(event.data) or stated("")
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
    if job.state is State.CANCELLED:
        return
    reason = recorded(event.data) or stated("")
    if reason.code is ReasonCode.CANCELLED_BY:
        _cancel_mission(scratch, str(reason.data.get("by", "")))
    elif job.state is State.RUNNING:
        _drop_out(scratch, job, reason.data.get("limit"))


def _decide(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.known(event)
    job_id, by = scratch.ids[past.id], str(event.data.get("by"))
    admission = scratch.site.admission
    match event.data.get("decision"):
        case "approve":
            params = event.data.get("params")
            revised = params if isinstance(params, dict) else None
            scratch.books(
                lambda ledger: approve.approve(ledger, admission, job_id, by=by, now=None, params=revised)
            )
        case "reject":
            reason = str(event.data.get("reason", ""))
            scratch.books(lambda ledger: approve.reject(ledger, job_id, reason, by=by))
        case "answer":
            text = str(from_json(past.result or "{}").get("answer", ""))
            scratch.books(lambda ledger: answer(ledger, job_id, text, by=by))
        case "reply":
            reply = _brought(scratch, event)
            scratch.books(lambda ledger: bring_reply(ledger, ledger.job(job_id), reply, by=by))
        case "retry":
            scratch.books(lambda ledger: steer.retry(ledger, job_id, by=by, workers=admission.workers))


def _brought(scratch: Scratch, event: PastEvent) -> str:
    """The reply that a person gave in place of the planner."""
    number = event.data.get("question")
    turn = scratch.past.turns.get(number) if isinstance(number, int) else None
    if turn is None:
        raise Strayed(f"the reply to question {number} is not in the history")
    return turn.reply or ""


def _say(scratch: Scratch, event: PastEvent) -> None:
    text, by = str(event.data.get("text")), str(event.data.get("by"))
    about = None if event.job_id is None else scratch.ids[scratch.known(event).id]
    scratch.books(lambda ledger: say(ledger, scratch.mission_id, text, by=by, job_id=about))


_ACTS: Mapping[str, Callable[[Scratch, PastEvent], None]] = {
    "mission_cancelled": _end_by_cancel,
    "resumed": _resume,
    "forked": _fork,
    "asked": _ask,
    "replied": _reply,
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
    "decided": _decide,
    SAID: _say,
}
"""What is done for an event; the others follow from these."""
