"""Do again what a history tells, event by event, over a scratch database and a scratch root.

The history is the schedule: leases, replies, ends of attempts and decisions of people are taken from it in its order,
and everything that follows from them (new jobs, turns, holds, the mission's end) is left to the engine of today.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue

from lcp_engine.clock import SECOND
from lcp_engine.effects import APPLIED
from lcp_engine.engine import deciding, steering
from lcp_engine.engine.answering import answer
from lcp_engine.engine.asking import keep_cost, keep_reply, new_question, open_question
from lcp_engine.engine.failing import paid_tokens
from lcp_engine.engine.handover import ASKED
from lcp_engine.engine.outcomes import Succeeded
from lcp_engine.engine.plans import acting_plan, spec_of, usage_of
from lcp_engine.engine.relaying import bring_reply, hold_turn
from lcp_engine.engine.saying import say
from lcp_engine.engine.settling import Settling, rescue, settle
from lcp_engine.errors import ErrorCode, Failed, Json, LcpError
from lcp_engine.execution import Conclusion, Executor, conclude
from lcp_engine.jobs import (
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
from lcp_engine.mission import AcceptCheck
from lcp_engine.sandbox.replace import locked, temporary_name
from lcp_engine.sandbox.root import Root
from lcp_engine.site import Site
from lcp_engine.store import queue
from lcp_engine.store.archive import Archive, PastEvent, PastJob
from lcp_engine.store.changes import content
from lcp_engine.store.database import Database
from lcp_engine.store.ledger import Ledger, NewJobRow, ledger_of
from lcp_engine.store.records import ChangeRow, JobRow, RunnerRow
from lcp_engine.store.said import SAID
from lcp_engine.store.text import from_json
from lcp_engine.store.transaction import Tx
from lcp_engine.store.turns import StoredReply, question, question_of
from lcp_engine.workers.base import Hold

CREATED = {QUEUE.event: State.QUEUED, HOLD.event: State.HELD}
CANCELLED_BY = "cancelled by "
_NOT_CONCLUDED = (ErrorCode.TIMEOUT, ErrorCode.RUNNER_DIED, ErrorCode.PLANNER_FAILED)
"""Errors of a turn that say nothing about its reply, though one may be stored."""


class Strayed(Exception):
    """What the history tells next cannot be done: the mission took another way before."""


class HistoryClock:
    """Tells the time of the event that is done again, so that limits of time are what they were."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Reenactment:
    """Does the mission of `past` again in `site`, whose database is empty, beneath `root`.

    `contents` is the database that holds the pre-images. Jobs are known by their place in the order in which they
    were stored, which is their id here.
    """

    def __init__(
        self, site: Site, clock: HistoryClock, past: Archive, root: Root, contents: Database
    ) -> None:
        self._site = site
        self._database = site.database
        self._clock = clock
        self._past = past
        self._root = root
        self._contents = contents
        self._chance = random.Random(0)  # noqa: S311 -- no secret
        self._executor = Executor(site, self._settle_now)
        self._ids = {job.id: place for place, job in enumerate(past.jobs, start=1)}
        self._jobs = {job.id: job for job in past.jobs}
        self._replied: set[int] = set()
        self._hashes: dict[str, str | None] = {}
        self._mission_id = 1
        self._runner_id = 0
        self._acts: Mapping[str, Callable[[PastEvent], None]] = {
            QUEUE.event: self._enqueue,
            HOLD.event: self._enqueue,
            START.event: self._start,
            "asked": self._ask,
            "replied": self._reply,
            SUCCEED.event: self._end_attempt,
            FAIL.event: self._end_attempt,
            DELEGATE.event: self._end_attempt,
            BACK_OFF.event: self._end_attempt,
            HOLD_AGAIN.event: self._hold_again,
            RELEASE.event: self._release,
            RESCUE.event: self._rescue,
            CANCEL.event: self._cancel_job,
            "mission_cancelled": self._cancel_mission,
            "decided": self._decide,
            SAID: self._say,
            "resumed": self._resume,
            "forked": self._fork,
        }

    def run(self) -> tuple[PastEvent, str] | None:
        """Do everything; the event that could not be done and why, where the mission took another way."""
        self._clock.now = self._past.events[0].at
        self._launch()
        for event in self._past.events:
            self._clock.now = event.at
            act = self._acts.get(event.event)
            if act is None:
                continue
            try:
                act(event)
            except (Strayed, LcpError) as refused:
                return event, str(refused)
        return None

    # -- the mission

    def _launch(self) -> None:
        past = self._past
        spec = spec_of(past.spec)
        if past.root is not None:
            # The planner may have called the root by its name of then.
            spec = spec.model_copy(update={"root_aliases": (*spec.root_aliases, past.root)})
        spec = spec.model_copy(update={"limits": spec.limits.model_copy(update=self._first_limits())})
        root = Path(self._root.path)

        def launch(ledger: Ledger) -> None:
            self._mission_id = steering.launch(ledger, spec, root)
            self._runner_id = queue.add_runner(ledger.tx, uid="replay", host="", boot="", pid=0)

        self._books(launch)
        for path, sha in {change.path: change.sha256_before for change in reversed(self._applied)}.items():
            self._restore(path, sha)

    def _first_limits(self) -> dict[str, JsonValue]:
        """The limits that the mission was launched with, where resuming changed them."""
        first: dict[str, JsonValue] = {}
        for event in self._past.events:
            before = event.data.get("before")
            if event.event == "resumed" and isinstance(before, dict):
                first = {**before, **first}
        return first

    def _cancel_mission(self, event: PastEvent) -> None:
        reasons = (
            str(later.data.get("reason", ""))
            for later in self._past.events[event.seq :]
            if later.event == CANCEL.event
        )
        self._cancel(next(reasons, self._past.summary or ""))

    def _cancel(self, reason: str) -> None:
        by = reason.removeprefix(CANCELLED_BY)
        self._books(lambda ledger: steering.cancel(ledger, self._mission_id, by=by))

    def _resume(self, event: PastEvent) -> None:
        limits = event.data.get("limits")
        given = limits if isinstance(limits, dict) else {}
        by = str(event.data.get("by"))
        self._books(lambda ledger: steering.resume(ledger, self._mission_id, given, by=by))

    def _fork(self, event: PastEvent) -> None:
        """Whoever forks begins anew with what counts in a row."""

        def fork(ledger: Ledger) -> None:
            for plan_id in self._plan_ids(ledger.tx):
                plan = ledger.plan(plan_id)
                plan.corrections = plan.stalled = plan.refused = 0
            mission = ledger.mission(self._mission_id)
            ledger.note(mission, event.event, None, event.data)
            mission.changed_seq = _number(event.data.get("changed_seq"))
            mission.bytes_written = _number(event.data.get("bytes_written"))

        self._books(fork)

    @staticmethod
    def _plan_ids(tx: Tx) -> list[int]:
        return [int(row[0]) for row in tx.query_plain("SELECT id FROM plans")]

    # -- turns

    def _ask(self, event: PastEvent) -> None:
        past = self._known(event)
        job = self._database.read(lambda tx: self._job(tx, past))
        limit = event.data.get("last_turn")

        def ask(ledger: Ledger) -> None:
            self._take_the_time_of_then(ledger, limit)
            if job.state is State.QUEUED:  # a fork was given the reply before anybody took the turn
                mission, plan = ledger.mission(self._mission_id), acting_plan(ledger, job)
                new_question(ledger, job, mission, plan, from_json(job.params))
            else:
                open_question(ledger, job.copy())

        self._books(ask)

    def _take_the_time_of_then(self, ledger: Ledger, limit: JsonValue) -> None:
        """Seconds of running time are measured: whether they were used up is what the history says."""
        mission = ledger.mission(self._mission_id)
        most = spec_of(mission.spec).limits.max_seconds
        if most is None:
            return
        used = usage_of(mission, ledger.tx.now).seconds
        if limit == "max_seconds" and used < most:
            mission.ran += int((most - used) * SECOND) + 1
        elif limit != "max_seconds" and used >= most:
            mission.ran, mission.running_since = 0, ledger.tx.now

    def _reply(self, event: PastEvent) -> None:
        number = event.data.get("question")
        past = self._past.turns.get(number) if isinstance(number, int) else None
        if past is None or past.reply is None:
            raise Strayed(f"the reply to question {number} is not in the history")
        reply = StoredReply(
            past.reply, past.prompt, past.input_tokens, past.output_tokens, past.latency or 0.0
        )

        def keep(ledger: Ledger) -> None:
            turn = question(ledger.tx, self._mission_id, past.number)
            if turn is None:
                raise Strayed(f"question {past.number} was not asked")
            keep_reply(ledger, turn, reply)

        self._books(keep)
        self._replied.add(past.job_id)

    # -- attempts

    def _enqueue(self, event: PastEvent) -> None:
        """A job that neither planner nor loop asked for: somebody put it into the mission."""
        past = self._known(event)
        if past.role != "work" or past.fingerprint is not None or past.parent_id is not None:
            return
        if self._database.read(lambda tx: queue.find_jobs(tx, [self._ids[past.id]])):
            return

        reason = event.data.get("reason")

        def put(ledger: Ledger) -> None:
            mission = ledger.mission(self._mission_id)
            ledger.create(
                mission,
                NewJobRow(
                    plan_id=None if past.plan_id is None else mission.root_plan,
                    name=past.name,
                    kind=past.kind,
                    params=past.params,
                    state=CREATED[event.event],
                    reason=None if reason is None else str(reason),
                    priority=past.priority,
                    run_after=past.run_after,
                    max_attempts=past.max_attempts,
                ),
            )

        self._books(put)

    def _start(self, event: PastEvent) -> None:
        past = self._known(event)

        def start(ledger: Ledger) -> None:
            job = self._job(ledger.tx, past)
            if job.state is not State.QUEUED:
                raise Strayed(f"job {past.id} ({past.kind}) was started; now it is {job.state}")
            ledger.mission(job.mission_id)
            queue.lease(ledger, [job], self._runner_id)

        self._books(start)

    def _end_attempt(self, event: PastEvent) -> None:
        past = self._known(event)
        job = self._leased(event)
        if past.role == "work" and event.event == SUCCEED.event:
            self._succeed(past, job, is_copied=event.seq < self._forked_seq)
            return
        failed = None if event.event in (SUCCEED.event, DELEGATE.event) else self._failure(past, job)
        has_reply = past.role != "work" and past.id in self._replied
        if failed is None or (has_reply and failed.code not in _NOT_CONCLUDED):
            self._conclude_turn(past, job)
        else:
            self._pay(past, job, failed)
            self._settle(job, failed)

    def _succeed(self, past: PastJob, job: JobRow, *, is_copied: bool) -> None:
        if job.params != past.params and from_json(job.params) != from_json(past.params):
            raise Strayed(f"job {past.id} ({past.kind}) has other params now, for which no result is known")
        change = next((change for change in self._applied if change.job_id == past.id), None)
        if change is None:
            worker = self._site.bench.workers.get(past.kind)
            # A fork has the jobs of the mission it comes from, and not their changes of files.
            has_written = is_copied and worker is not None and worker.writes
            self._settle(job, Succeeded(past.result or "{}", 0 if has_written else None))
        else:
            self._write(past, job, change)

    def _write(self, past: PastJob, job: JobRow, change: ChangeRow) -> None:
        """Change the file for real, after what others did to it meanwhile."""
        worker = self._site.bench.workers.get(past.kind)
        if worker is None:
            raise Strayed(f"job {past.id} needs a worker for the kind {past.kind!r}; none is installed")
        if self._hashes.get(change.path) != change.sha256_before:
            self._restore(change.path, change.sha256_before)
        conclusion = self._executor.execute(job, worker)
        self._hashes[change.path] = change.sha256_after
        if conclusion is not None:
            self._conclude(conclusion)

    def _pay(self, past: PastJob, job: JobRow, failed: Failed) -> None:
        """Count what a question cost that got no reply."""
        tokens = None if past.role == "work" else paid_tokens(failed)
        asked = None if tokens is None else self._database.read(lambda tx: question_of(tx, job.id))
        if asked is not None and tokens is not None:
            self._books(lambda ledger: keep_cost(ledger, asked, tokens))

    def _conclude_turn(self, past: PastJob, job: JobRow) -> None:
        """Read the stored reply and do what follows; an attempt that finds the reply to its question uses it (R21)."""
        if past.id not in self._replied:
            raise Strayed(f"job {past.id} ({past.kind}) has no reply in the history")
        worker = self._site.bench.workers[past.kind]
        conclusion = self._executor.execute(job, worker)
        if conclusion is not None:
            self._conclude(replace(conclusion, unmet=self._unmet(past, conclusion.unmet)))

    def _unmet(self, past: PastJob, found: tuple[str, ...]) -> tuple[str, ...]:
        """Acceptance checks on files that the mission wrote are made again; what others came to is in the history."""
        written = {change.path for change in self._applied}
        spec = spec_of(self._past.spec)
        told = self._told_unmet(past)
        kept: list[str] = []
        for check in spec.accept:
            source = found if check.path in written else told
            kept += [fault for fault in source if _is_of(check, fault)]
        return tuple(kept)

    def _told_unmet(self, past: PastJob) -> tuple[str, ...]:
        """The faults that the history tells of a turn: to a person, to the planner in the next one, or as the end."""
        asked = (event for event in self._past.events if event.event == ASKED and event.job_id is not None)
        for event in asked:
            listed = event.data.get("unmet")
            if isinstance(listed, list) and self._known(event).parent_id == past.id:
                return tuple(map(str, listed))
        turns = (job for job in self._past.jobs if job.id > past.id and job.role == "turn")
        notices = (from_json(job.params).get("notices") for job in turns)
        told = next((notice for notice in notices if isinstance(notice, list)), [self._past.summary])
        checks = [check.description for check in spec_of(self._past.spec).accept]
        return tuple(
            str(text)[str(text).index(check) :] for text in told for check in checks if check in str(text)
        )

    def _hold_again(self, event: PastEvent) -> None:
        past, job = self._known(event), self._leased(event)
        asked = self._database.read(lambda tx: question_of(tx, job.id))
        if past.role == "work" or asked is None:
            self._settle(job, Hold(str(event.data.get("reason", ""))))
            return
        # The planner was a person, to whom the question was relayed.
        prompt = self._past.turns[asked.number].prompt or ""
        self._books(lambda ledger: hold_turn(ledger, job.copy(), asked, prompt))

    def _release(self, event: PastEvent) -> None:
        job = self._leased(event)
        self._books(lambda ledger: queue.release(ledger, job.copy(), str(event.data.get("reason", ""))))

    def _rescue(self, event: PastEvent) -> None:
        past, job = self._known(event), self._leased(event)
        attempt = self._past.attempts.get((past.id, job.attempt))
        alive = event.at if attempt is None or attempt.alive_until is None else attempt.alive_until
        runner = RunnerRow(self._runner_id, "replay", "", "", 0, alive)
        self._books(lambda ledger: rescue(ledger, job.copy(), runner, has_started=attempt is not None))

    def _cancel_job(self, event: PastEvent) -> None:
        """A turn that nobody needs any more drops out when it is asked; else a person cancelled what was left."""
        past = self._known(event)
        job = self._database.read(lambda tx: self._job(tx, past))
        reason = str(event.data.get("reason", ""))
        if job.state is State.CANCELLED:
            return
        if reason.startswith(CANCELLED_BY):
            self._cancel(reason)
        elif job.state is State.RUNNING:

            def ask(ledger: Ledger) -> None:
                self._take_the_time_of_then(ledger, "max_seconds" if "max_seconds" in reason else None)
                open_question(ledger, job.copy())

            self._books(ask)

    # -- decisions

    def _decide(self, event: PastEvent) -> None:
        past = self._known(event)
        job_id, by = self._ids[past.id], str(event.data.get("by"))
        bench = self._site.bench
        match event.data.get("decision"):
            case "approve":
                params = event.data.get("params")
                revised = params if isinstance(params, dict) else None
                self._books(
                    lambda ledger: deciding.approve(ledger, bench, job_id, by=by, now=None, params=revised)
                )
            case "reject":
                reason = str(event.data.get("reason", ""))
                self._books(lambda ledger: deciding.reject(ledger, job_id, reason, by=by))
            case "answer":
                text = str(from_json(past.result or "{}").get("answer", ""))
                self._books(lambda ledger: answer(ledger, job_id, text, by=by))
            case "reply":
                reply = self._past.turns[_number(event.data.get("question"))].reply or ""
                self._books(lambda ledger: bring_reply(ledger, ledger.job(job_id), reply, by=by))
            case "retry":
                self._books(lambda ledger: steering.retry(ledger, job_id, by=by, workers=bench.workers))

    def _say(self, event: PastEvent) -> None:
        text, by = str(event.data.get("text")), str(event.data.get("by"))
        about = None if event.job_id is None else self._ids[self._known(event).id]
        self._books(lambda ledger: say(ledger, self._mission_id, text, by=by, job_id=about))

    # -- parts

    @cached_property
    def _applied(self) -> list[ChangeRow]:
        """What the mission's jobs did to files, in the order of their intents."""
        return [change for change in self._past.changes if change.state == APPLIED and change.undoes is None]

    @cached_property
    def _forked_seq(self) -> int:
        return max((event.seq for event in self._past.events if event.event == "forked"), default=0)

    def _known(self, event: PastEvent) -> PastJob:
        past = None if event.job_id is None else self._jobs.get(event.job_id)
        if past is None:
            raise Strayed(f"job {event.job_id} of event {event.seq} is not in the history")
        return past

    def _job(self, tx: Tx, past: PastJob) -> JobRow:
        """The job here that is `past`."""
        found = queue.find_jobs(tx, [self._ids[past.id]])
        if not found:
            raise Strayed(f"job {past.id} ({past.kind}) was requested; now it is not")
        if found[0].kind != past.kind:
            raise Strayed(f"job {past.id} was a {past.kind}; now it is a {found[0].kind}")
        return found[0]

    def _leased(self, event: PastEvent) -> JobRow:
        past = self._known(event)
        job = self._database.read(lambda tx: self._job(tx, past))
        if job.state is not State.RUNNING:
            raise Strayed(f"job {past.id} ({past.kind}) was running; now it is {job.state}")
        return job

    def _failure(self, past: PastJob, job: JobRow) -> Failed:
        """Why the attempt failed, as it was stored."""
        attempt = self._past.attempts.get((past.id, job.attempt))
        stored: dict[str, Json] = json.loads((attempt.error if attempt else None) or past.error or "{}")
        code = stored.get("error_code")
        known = ErrorCode(code) if code in set(ErrorCode) else ErrorCode.WORKER_FAILED
        details = stored.get("technical_details")
        told = details if isinstance(details, Mapping) else {}
        return Failed(known, str(stored.get("user_message", "")), told)

    def _settle(self, job: JobRow, outcome: Succeeded | Failed | Hold) -> None:
        self._books(lambda ledger: settle(ledger, Settling(job.copy(), outcome), self._chance))

    def _settle_now(self, tx: Tx, settling: Settling) -> None:
        settle(ledger_of(tx), settling, self._chance)

    def _conclude(self, conclusion: Conclusion) -> None:
        self._books(lambda ledger: conclude(ledger, [conclusion], self._chance))

    def _restore(self, path: str, sha: str | None) -> None:
        """Make the file what it was before a change."""
        data = None if sha is None else self._contents.read(lambda tx: content(tx, sha))
        if data is not None or self._hashes.get(path) is not None:
            with locked(self._root, path) as target:
                target.remove() if data is None else target.replace(data, temporary_name())
        self._hashes[path] = sha

    def _books(self, work: Callable[[Ledger], object]) -> None:
        self._database.write(lambda tx: work(ledger_of(tx)))


def _is_of(check: AcceptCheck, fault: str) -> bool:
    return fault.startswith(f"{check.description}: ")


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
