"""Re-enact a mission from its history, event by event.

Leases, replies, results of attempts and decisions of people are taken from the history in its order. Everything that
follows from them (new jobs, turns, holds, the mission's end) is decided by the engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
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
    STOP_AT_LIMIT,
    SUCCEED,
    Role,
    State,
)
from lcp_engine.core.json_values import list_in
from lcp_engine.core.limits.money import Cost, amount_text
from lcp_engine.core.mission.parse import with_limits
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.policy import Rule
from lcp_engine.core.protocol.actions import Problem
from lcp_engine.core.reasons import ReasonCode, recorded, stated
from lcp_engine.engine import missions
from lcp_engine.engine.failure import paid_tokens
from lcp_engine.engine.limit_holds import DECLINED, RAISED
from lcp_engine.engine.outcome import HeldRequest, Succeeded
from lcp_engine.engine.people import approvals
from lcp_engine.engine.people.approvals import answer
from lcp_engine.engine.people.messages import say
from lcp_engine.engine.progress import usage_of
from lcp_engine.engine.question import (
    bring_reply,
    hold_turn,
    keep_cost,
    keep_reply,
    new_question,
    open_question,
    seconds_left,
)
from lcp_engine.engine.reply import ECHO, FinishedTurn
from lcp_engine.engine.settle import rescue
from lcp_engine.engine.turn_queue import acting_plan
from lcp_engine.errors import GENERAL, ErrorCode, Failed, Json, LcpError
from lcp_engine.feature import find_code
from lcp_engine.features.plans.steps import begin_with, from_text, keep_resolved, resolved_params
from lcp_engine.features.plans.store.stated_plans import RESOLVED
from lcp_engine.features.replay.scratch import Diverged, HistoryClock, Scratch
from lcp_engine.features.replay.store.archive import Archive, PastEvent, PastJob
from lcp_engine.features.replay.store.copy_mission import plan_ids
from lcp_engine.features.rules.always import RULES_CHANGED, set_rules
from lcp_engine.store import queue
from lcp_engine.store.db.json_text import fingerprint, from_json
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.people import SAID, Sight
from lcp_engine.store.row_types import JobRow, RunnerRow
from lcp_engine.store.turns import PROMPT, StoredReply, keep_memories, question, question_of
from lcp_engine.workers.base import Hold

_CREATED = {QUEUE.event: State.QUEUED, HOLD.event: State.HELD}
_NO_REPLY_READ = (ErrorCode.TIMEOUT, ErrorCode.RUNNER_DIED, ErrorCode.PLANNER_FAILED)
"""Errors of a turn that are not about its reply, although one may be stored."""


def reenact(scratch: Scratch, clock: HistoryClock) -> tuple[PastEvent, str] | None:
    """Re-enact all events. Returns the first event that was not possible, with the reason; None after the last."""
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
        except (Diverged, LcpError) as refused:
            return event, str(refused)
    return None


def _launch(scratch: Scratch) -> None:
    """Launch the mission with its first limits, over the files as they were."""
    past = scratch.past
    spec = spec_of(past.spec)
    if past.root is not None:
        # The planner may have used the root's original path.
        spec = spec.model_copy(update={"root_aliases": (*spec.root_aliases, past.root)})
    limits = with_limits(spec.limits, _first_limits(past))
    asks = any(event.event == DECLINED for event in past.events)
    on_limit = "hold" if asks else spec.on_limit
    spec = spec.model_copy(update={"limits": limits, "policy": rules_at(past, 0), "on_limit": on_limit})

    def launch(ledger: Ledger) -> None:
        begin = begin_with([from_text(plan.text) for plan in past.plans])
        scratch.mission_id = missions.launch(ledger, spec, Path(scratch.root.path), begin=begin)
        scratch.runner_id = queue.add_runner(ledger.tx, uid="replay", host="", boot="", pid=0)

    scratch.write(launch)
    first = {change.path: change.sha256_before for change in reversed(scratch.applied)}
    for path, sha in first.items():
        scratch.restore_file(path, sha)


def _cancel_mission(scratch: Scratch, by: str) -> None:
    scratch.write(missions.cancel, scratch.mission_id, by=by)


def _first_limits(past: Archive) -> dict[str, JsonValue]:
    """The limits of the launch that were changed by resuming."""
    first: dict[str, JsonValue] = {}
    for event in past.events:
        before = event.data.get("before")
        if event.event in ("resumed", RAISED) and isinstance(before, dict):
            first = {**before, **first}
    return first


def rules_at(past: Archive, seq: int) -> tuple[Rule, ...]:
    """The mission's own rules before event `seq`; people may have added and removed some since."""
    changed = (event for event in past.events if event.event == RULES_CHANGED and event.seq >= seq)
    first = next(changed, None)
    return spec_of(past.spec).policy if first is None else _rules_in(first.data.get("before"))


def _rules_in(stated: JsonValue) -> tuple[Rule, ...]:
    return tuple(Rule.model_validate(rule) for rule in list_in(stated))


def _end_by_cancel(scratch: Scratch, event: PastEvent) -> None:
    _cancel_mission(scratch, str(event.data.get("by", "")))


def _resume(scratch: Scratch, event: PastEvent) -> None:
    limits = event.data.get("limits")
    given = limits if isinstance(limits, dict) else {}
    by = str(event.data.get("by"))
    scratch.write(missions.resume, scratch.mission_id, given, by=by)


def _change_rules(scratch: Scratch, event: PastEvent) -> None:
    rules = _rules_in(event.data.get("rules"))
    about = None if event.job_id is None else scratch.ids[scratch.past_job(event).id]
    scratch.write(set_rules, scratch.mission_id, rules, event.data, about)


def _fork(scratch: Scratch, event: PastEvent) -> None:
    """Note the fork; it resets the plans' counters of consecutive faults."""

    def fork(ledger: Ledger) -> None:
        for plan_id in plan_ids(ledger.tx):
            plan = ledger.plan(plan_id)
            plan.corrections = plan.stalled = plan.refused = 0
        mission = ledger.mission(scratch.mission_id)
        ledger.note(mission, event.event, None, event.data)
        mission.changed_seq = _number(event.data.get("changed_seq"))
        mission.bytes_written = _number(event.data.get("bytes_written"))

    scratch.write(fork)


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0


def _finish_turn(scratch: Scratch, event: PastEvent, past: PastJob, job: JobRow) -> None:
    """Read the stored reply, as an attempt that finds one does (R21), and settle the turn."""
    if past.id not in scratch.replied:
        raise Diverged(f"job {past.id} ({past.kind}) has no reply in the history")
    finished = scratch.execute(past, job)
    if isinstance(finished, FinishedTurn):
        checks = _failed_checks(scratch, event, finished.failed_checks)
        merges = not _has_equal_jobs(scratch.past, past)
        finished = replace(finished, failed_checks=checks, merges=merges, objection=_recorded_echo(event))
    if finished is not None:
        scratch.settle_finished(finished)


def _has_equal_jobs(history: Archive, turn: PastJob) -> bool:
    """True if a turn stored equal jobs of its reply apart, as it did before they were one (R11)."""
    marks = [job.fingerprint for job in history.jobs if job.parent_id == turn.id and job.fingerprint]
    return len(marks) > len(set(marks))


def _count_tokens(scratch: Scratch, past: PastJob, job: JobRow, failed: Failed) -> None:
    """Count the tokens of a question that got no reply."""
    tokens = None if past.role is Role.WORK else paid_tokens(failed)
    if tokens is None:
        return
    asked = scratch.instance.database.read(lambda tx: question_of(tx, job.id))
    if asked is not None:
        scratch.write(keep_cost, asked, tokens)


def _hold_for_person(scratch: Scratch, job: JobRow, event: PastEvent) -> bool:
    """Hold a turn whose question goes to a human planner; False if the job has asked none."""
    asked = scratch.instance.database.read(lambda tx: question_of(tx, job.id))
    if asked is None:
        return False
    prompt = scratch.past.turns[asked.number].prompt or ""
    about = event.data.get("about")
    record = about.get(PROMPT) if isinstance(about, Mapping) else None
    scratch.write(hold_turn, job.copy(), asked, prompt, {**record} if isinstance(record, Mapping) else None)
    return True


def _stop_at_limit(scratch: Scratch, event: PastEvent) -> None:
    """Have a turn find the limit at which a person was asked for more."""
    job = scratch.running_job(scratch.past_job(event))
    reason = recorded(event.data)
    _open_needless(scratch, job, None if reason is None else reason.data.get("limit"))


def _open_needless(scratch: Scratch, job: JobRow, limit: JsonValue) -> None:
    """Open the question of a turn that is no longer needed, which cancels it."""

    def ask(ledger: Ledger) -> None:
        _set_running_time(scratch, ledger, limit)
        _set_cost(scratch, ledger, limit)
        open_question(ledger, job.copy())

    scratch.write(ask)


def _ask(scratch: Scratch, event: PastEvent) -> None:
    job = scratch.read_job(scratch.past_job(event))
    limit = event.data.get("last_turn")

    def ask(ledger: Ledger) -> None:
        _set_running_time(scratch, ledger, limit)
        _set_cost(scratch, ledger, limit)
        if job.state is State.QUEUED:  # a fork was given the reply before the turn was claimed
            mission, plan = ledger.mission(scratch.mission_id), acting_plan(ledger, job)
            new_question(ledger, job, mission, plan, from_json(job.params))
        else:
            open_question(ledger, job.copy())
        number = event.data.get("question")
        if isinstance(number, int) and (past := scratch.past.turns.get(number)) is not None:
            keep_memories(ledger.tx, scratch.mission_id, number, past.memories)

    scratch.write(ask)


def _set_running_time(scratch: Scratch, ledger: Ledger, limit: JsonValue) -> None:
    """Make the running time exceed `max_seconds` exactly if the history says that it did."""
    mission = ledger.mission(scratch.mission_id)
    most = spec_of(mission.spec).limits.max_seconds
    if most is None:
        return
    used = usage_of(mission, ledger.tx.now).seconds
    if limit == "max_seconds" and used < most:
        mission.ran += int((most - used) * SECOND) + 1
    elif limit != "max_seconds" and used >= most:
        mission.ran, mission.running_since = 0, ledger.tx.now


def _set_cost(scratch: Scratch, ledger: Ledger, limit: JsonValue) -> None:
    """Make the cost reach `max_cost` exactly if the history says that it did: that of failed attempts is not known."""
    mission = ledger.mission(scratch.mission_id)
    most = spec_of(mission.spec).limits.max_cost
    if most is None:
        return
    used = usage_of(mission, ledger.tx.now).cost
    if limit == "max_cost" and used < most:
        mission.cost = amount_text(most)
    elif limit != "max_cost" and used >= most:
        mission.cost = None


def _reply(scratch: Scratch, event: PastEvent) -> None:
    number = event.data.get("question")
    past = scratch.past.turns.get(number) if isinstance(number, int) else None
    if past is None or past.reply is None:
        raise Diverged(f"the reply to question {number} is not in the history")
    noted = event.data.get(PROMPT)
    record = noted if isinstance(noted, dict) else None
    made = [] if past.completions is None else json.loads(past.completions)
    spent = Cost(tuple(made), None if past.cost is None else Decimal(past.cost), past.currency)
    reply = StoredReply(
        past.reply, past.prompt, past.input_tokens, past.output_tokens, past.latency or 0.0, record, spent
    )

    def store(ledger: Ledger) -> None:
        turn = question(ledger.tx, scratch.mission_id, past.number)
        if turn is None:
            raise Diverged(f"question {past.number} was not asked")
        keep_reply(ledger, turn, reply)

    scratch.write(store)
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


def _recorded_echo(event: PastEvent) -> Problem | None:
    """Reason why the words of a turn were not an answer: they are not judged again, maybe by another rule."""
    found = event.data.get(ECHO)
    return None if found is None else Problem.model_validate(found)


def _recorded_checks(event: PastEvent) -> list[FailedCheck]:
    listed = event.data.get("failed_checks")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return [
        FailedCheck(_number(entry.get("check")), str(entry.get("fact")), entry.get("undecided") is True)
        for entry in entries
    ]


def _enqueue(scratch: Scratch, event: PastEvent) -> None:
    """Store a job that was enqueued from outside: neither a planner nor the loop requested it."""
    past = scratch.past_job(event)
    if past.role is not Role.WORK or past.fingerprint is not None or past.parent_id is not None:
        return
    if scratch.instance.database.read(lambda tx: queue.find_jobs(tx, [scratch.ids[past.id]])):
        return
    reason = recorded(event.data)

    def store(ledger: Ledger) -> None:
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

    scratch.write(store)


def _start(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.past_job(event)

    def start(ledger: Ledger) -> None:
        job = scratch.job(ledger.tx, past)
        if job.state is not State.QUEUED:
            raise Diverged(f"job {past.id} ({past.kind}) was started; now it is {job.state}")
        ledger.start_all([job], scratch.runner_id)

    scratch.write(start)


def _end(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.past_job(event)
    job = scratch.running_job(past)
    if past.role is Role.WORK and event.event == SUCCEED.event:
        _succeed(scratch, past, job, is_copied=event.seq < _forked_seq(scratch.past))
        return
    failed = None if event.event in (SUCCEED.event, DELEGATE.event) else _failure(scratch.past, past, job)
    has_reply = past.role is not Role.WORK and past.id in scratch.replied
    if failed is None or (has_reply and failed.code not in _NO_REPLY_READ):
        _finish_turn(scratch, event, past, job)
    else:
        _count_tokens(scratch, past, job, failed)
        if event.data.get("limit") == "max_seconds":
            scratch.write(partial(_use_up_time, scratch, job))
        scratch.settle(job, failed)


def _use_up_time(scratch: Scratch, job: JobRow, ledger: Ledger) -> None:
    """Let the time for a reply be over, as it was when the turn failed."""
    mission, turn = ledger.mission(scratch.mission_id), question_of(ledger.tx, job.id)
    left = None if turn is None else seconds_left(mission, turn, ledger.tx.now)
    mission.ran += 0 if left is None else int(left * SECOND) + 1


def _succeed(scratch: Scratch, past: PastJob, job: JobRow, *, is_copied: bool) -> None:
    if job.params != past.params and from_json(job.params) != from_json(past.params):
        raise Diverged(f"job {past.id} ({past.kind}) has different params now, for which there is no result")
    made = [change for change in scratch.applied if change.job_id == past.id]
    if made:
        scratch.apply_changes(past, job, [one for one in made if one.attempt == made[0].attempt])
        return
    worker = scratch.instance.admission.workers.get(past.kind)
    # A fork has the jobs of the original mission, but not their file changes.
    has_written = is_copied and worker is not None and worker.writes
    written = 0 if has_written else None
    scratch.settle(job, Succeeded(past.result or "{}", written, request=_request_of(scratch, past)))


def _request_of(scratch: Scratch, past: PastJob) -> HeldRequest | None:
    """The job that a job which is no turn requested of a person; the recorded result names it already."""
    if past.role is not Role.WORK:
        return None
    made = (one for one in scratch.past.jobs if one.parent_id == past.id and one.fingerprint is None)
    found = next(made, None)
    if found is None:
        return None
    event = next(one for one in scratch.past.events if one.job_id == found.id)
    reason, params = recorded(event.data) or stated(""), from_json(found.params)
    sight = Sight(fingerprint(found.kind, params), None, None, 0)
    return HeldRequest(found.kind, found.name or "", params, found.max_attempts, reason, sight)


def _forked_seq(history: Archive) -> int:
    return max((event.seq for event in history.events if event.event == "forked"), default=0)


def _failure(history: Archive, past: PastJob, job: JobRow) -> Failed:
    """The stored error of the attempt."""
    attempt = history.attempts.get((past.id, job.attempt))
    stored: dict[str, Json] = json.loads((attempt.error if attempt else None) or past.error or "{}")
    code = stored.get("error_code")
    known = find_code(str(code)) or ErrorCode.WORKER_FAILED
    details = stored.get("technical_details")
    given = details if isinstance(details, Mapping) else {}
    return Failed(known, str(stored.get("user_message", "")), given, advice=GENERAL)


def _hold_again(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.past_job(event)
    job = scratch.running_job(past)
    if past.role is Role.WORK or not _hold_for_person(scratch, job, event):
        scratch.settle(job, Hold(recorded(event.data) or ""))


def _release(scratch: Scratch, event: PastEvent) -> None:
    job = scratch.running_job(scratch.past_job(event))
    reason = recorded(event.data) or stated("")
    scratch.write(queue.release, job.copy(), reason)


def _rescue(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.past_job(event)
    job = scratch.running_job(past)
    attempt = scratch.past.attempts.get((past.id, job.attempt))
    alive = event.at if attempt is None or attempt.alive_until is None else attempt.alive_until
    runner = RunnerRow(scratch.runner_id, "replay", "", "", 0, alive)
    scratch.write(rescue, job.copy(), runner, has_started=attempt is not None)


def _cancel(scratch: Scratch, event: PastEvent) -> None:
    """Cancel the mission if a person did; a turn that is no longer needed is cancelled when it is asked."""
    job = scratch.read_job(scratch.past_job(event))
    if job.state is State.CANCELLED:
        return
    reason = recorded(event.data) or stated("")
    if reason.code is ReasonCode.CANCELLED_BY:
        _cancel_mission(scratch, str(reason.data.get("by", "")))
    elif job.state is State.RUNNING:
        _open_needless(scratch, job, reason.data.get("limit"))


def _decide(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.past_job(event)
    job_id, by = scratch.ids[past.id], str(event.data.get("by"))
    admission = scratch.instance.admission
    match event.data.get("decision"):
        case "approve":
            params = event.data.get("params")
            revised = params if isinstance(params, dict) else None
            scratch.write(approvals.approve, admission, job_id, by=by, now=None, params=revised)
        case "reject":
            reason = str(event.data.get("reason", ""))
            scratch.write(approvals.reject, job_id, reason, by=by)
        case "answer":
            result = from_json(past.result or "{}")
            values = result.get("values")
            form = values if isinstance(values, dict) else None
            said = result.get("answer") if form is None else result.get("words")
            scratch.write(answer, job_id, str(said or ""), by=by, words=True, form=form)
        case "reply":
            reply = _reply_of_person(scratch, event)
            scratch.write(_bring_reply, job_id, reply, by)
        case "retry":
            scratch.write(missions.retry, job_id, by=by, workers=admission.workers)


def _bring_reply(ledger: Ledger, job_id: int, reply: str, by: str) -> None:
    bring_reply(ledger, ledger.job(job_id), reply, by=by)


def _reply_of_person(scratch: Scratch, event: PastEvent) -> str:
    """The reply of a human planner."""
    number = event.data.get("question")
    turn = scratch.past.turns.get(number) if isinstance(number, int) else None
    if turn is None:
        raise Diverged(f"the reply to question {number} is not in the history")
    return turn.reply or ""


def _resolve(scratch: Scratch, event: PastEvent) -> None:
    """Replace the references of a step, from the results here."""
    past = scratch.past_job(event)
    job = scratch.read_job(past)

    def resolve(ledger: Ledger) -> None:
        params = resolved_params(ledger.tx, job)
        if isinstance(params, Failed):
            raise Diverged(params.message)
        worker = scratch.instance.admission.workers.get(past.kind)
        if worker is None:
            raise Diverged(f"job {past.id} needs a worker for the kind {past.kind!r}; none is installed")
        keep_resolved(ledger, worker, job.copy(), params)

    scratch.write(resolve)


def _say(scratch: Scratch, event: PastEvent) -> None:
    text, by = str(event.data.get("text")), str(event.data.get("by"))
    about = None if event.job_id is None else scratch.ids[scratch.past_job(event).id]
    scratch.write(say, scratch.mission_id, text, by=by, job_id=about)


_ACTS: Mapping[str, Callable[[Scratch, PastEvent], None]] = {
    "mission_cancelled": _end_by_cancel,
    "resumed": _resume,
    RULES_CHANGED: _change_rules,
    "forked": _fork,
    "asked": _ask,
    "replied": _reply,
    QUEUE.event: _enqueue,
    HOLD.event: _enqueue,
    START.event: _start,
    SUCCEED.event: _end,
    FAIL.event: _end,
    DELEGATE.event: _end,
    STOP_AT_LIMIT.event: _stop_at_limit,
    BACK_OFF.event: _end,
    HOLD_AGAIN.event: _hold_again,
    RELEASE.event: _release,
    RESCUE.event: _rescue,
    CANCEL.event: _cancel,
    "decided": _decide,
    RESOLVED: _resolve,
    SAID: _say,
}
"""What to do for an event; events that are not listed follow from these."""
