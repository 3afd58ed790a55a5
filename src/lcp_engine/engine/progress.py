"""Advance plans and missions: next turn, waiting, end (R6 to R9, R12, R13)."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple, assert_never

from pydantic import JsonValue

from lcp_engine.core.decide import AskPerson, End, Outcome, Usage, end_by_person
from lcp_engine.core.follow import (
    AskNext,
    Cause,
    Changes,
    Ends,
    EndsBy,
    Event,
    Followup,
    GoOn,
    Releases,
    Replaces,
    Situation,
    Stops,
    follow,
)
from lcp_engine.core.job_states import CANCEL, PLAN_FAIL, PLAN_SUCCEED, SETTLED, SKIP, Role, State, Transition
from lcp_engine.core.kinds import QUESTION
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.engine.failure import agent_error, failure_of
from lcp_engine.engine.limit_holds import is_about_limit, settle_limit
from lcp_engine.engine.points import asker_of, end_gates, observers, steps
from lcp_engine.engine.turn_queue import (
    acting_plan,
    claim_in,
    has_follower,
    is_asking,
    queue_turn,
    record_of,
    release_followers,
    unblock_turn,
)
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.store import missions
from lcp_engine.store.changes import written_paths
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.missions import NOTHING_FOUND, Findings, event_data, findings_in, open_sub_plans
from lcp_engine.store.people import said_to
from lcp_engine.store.queue import live_jobs, open_turns
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.store.turns import question, settled_jobs
from lcp_engine.workers.ask_user import KIND

ASKED = "person_asked"
"""The event of a question that the engine asks a person; its data is the planner's claim, if there is one."""
_STATE = 4
"""The column of the state in a row of `settled_jobs`."""


def usage_of(mission: MissionRow, now: int) -> Usage:
    ran = mission.ran + (max(0, now - mission.running_since) if mission.running_since is not None else 0)
    cost = Decimal(0 if mission.cost is None else mission.cost)
    return Usage(mission.turns, ran / 1_000_000, mission.input_tokens + mission.output_tokens, cost)


def after_settling(ledger: Ledger, job: JobRow, error: str | None = None) -> None:
    """Advance the plan of a settled job: queue its next turn once no other job of it is open (R7)."""
    _after(ledger, job, Event.SETTLED, error)


def after_rejecting(ledger: Ledger, job: JobRow) -> None:
    """Advance the plan of a rejected job: queue a turn with the reasons if nothing else of the plan is open."""
    _after(ledger, job, Event.REJECTED)


def _after(ledger: Ledger, job: JobRow, event: Event, error: str | None = None) -> None:
    mission = ledger.mission(job.mission_id)
    if job.plan_id is not None and not mission.has_ended:
        _Advance(ledger, mission, ledger.plan(job.plan_id), event, job, error).go_on()
    else:
        refresh(ledger, mission)


def after_holding(ledger: Ledger, plan: PlanRow) -> None:
    """Queue a turn for a plan that only waits for held jobs, if its planner has not seen the other results yet.

    Also if none of the held jobs is its own: an equal job of another plan is held, and a decision on that does not
    advance this plan.
    """
    _Advance(ledger, ledger.mission(plan.mission_id), plan, Event.HELD).go_on()


class _Advance(NamedTuple):
    """An event of a plan whose mission goes on, with what follows; `error` is why its job failed."""

    ledger: Ledger
    mission: MissionRow
    plan: PlanRow
    event: Event
    job: JobRow | None = None
    error: str | None = None

    def go_on(self, *, is_released: bool = False) -> None:
        """Carry out what follows; `is_released`: the jobs behind this one were released before."""
        ledger, mission, plan, event, job = self.ledger, self.mission, self.plan, self.event, self.job
        spec, answered, stated = spec_of(mission.spec), None, None
        is_refused = is_fatal = is_asked = waits_behind = has_news = False
        is_new = job is not None and not is_released
        if is_new and job is not None:
            answered = _answered(ledger, mission, plan, job)
            is_refused = event is Event.REJECTED and mission.asking == job.id
            is_fatal = job.state is State.FAILED and spec.on_job_failure == "fail"
        if plan.has_steps:
            stated = steps().look(ledger, plan, job if is_new else None) if answered is None else None
        elif not is_new and plan.held > 0 and plan.outcome is None and event is not Event.REJECTED:
            is_asked = plan.open == 0 and is_asking(ledger, plan)
            if event is Event.HELD:
                has_news = plan.open == 0 and not is_asked and _has_news(ledger, plan)
            elif job is not None and job.role is Role.STEP:
                waits_behind = has_follower(ledger, job)
        situation = Situation(
            event, is_released, answered, is_refused, is_fatal, plan.outcome is not None, plan.open, plan.held, stated,
            spec.continue_, is_asked, waits_behind, has_news,
        )  # fmt: skip
        self._carry_out(follow(situation))

    def _carry_out(self, followup: Followup) -> None:
        ledger, mission, plan = self.ledger, self.mission, self.plan
        match followup:
            case Releases():  # patterns with attributes take three times as long, and most jobs come here
                self._release(is_fault=followup.is_fault)
                return self.go_on(is_released=True)
            case GoOn():
                pass
            case Stops():
                self._stop(is_fault=followup.is_fault)
                return self.go_on(is_released=True)
            case AskNext():
                queue_turn(ledger, plan)
            case Changes():
                assert self.job is not None
                settle_limit(ledger, self.job)
            case Ends():
                return _end_as_answered(ledger, mission, plan, followup)
            case EndsBy(cause):
                self._end(cause)
            case Replaces():
                steps().replace(ledger, plan)
            case _:
                assert_never(followup)
        if self.event is not Event.HELD:
            refresh(ledger, mission)
        return None

    def _release(self, *, is_fault: bool) -> None:
        assert self.job is not None
        if is_fault:
            steps().note_fault(self.plan, self.job)
        release_followers(self.ledger, self.job)
        if self.job.role is Role.STEP and self.event is Event.SETTLED and not self.plan.has_steps:
            unblock_turn(self.ledger, self.mission)

    def _stop(self, *, is_fault: bool) -> None:
        """Begin no further step of a stated plan; the sub-plans of its steps end with it."""
        ledger, mission, plan = self.ledger, self.mission, self.plan
        if is_fault:
            assert self.job is not None
            steps().note_fault(plan, self.job)
            ended = _end_sub_plans(ledger, mission, Outcome.JOB_FAILED, within=plan)
            turns = [job for plan_id in sorted(ended) for job in open_turns(ledger, ledger.plan(plan_id))]
            _settle_all(ledger, mission, turns, SKIP, because(ReasonCode.PLAN_ENDED))
        steps().skip_rest(ledger, plan)

    def _end(self, cause: Cause) -> None:
        match cause:
            case Cause.JOB_FAILED:
                assert self.job is not None
                _end_with_job(self.ledger, self.mission, self.job, self.error)
            case Cause.NO_REPLY:
                assert self.job is not None
                _end_without_reply(self.ledger, self.mission, self.job)
            case Cause.NOTHING_LEFT:
                _end_by_rule(self.ledger, self.mission, self.plan)
            case _:
                assert_never(cause)


def _answered(ledger: Ledger, mission: MissionRow, plan: PlanRow, job: JobRow) -> Changes | Ends | None:
    """Followup of a person's answer about a limit, the end of the plan or its merge; None for other jobs."""
    if job.kind == QUESTION and is_about_limit(ledger, job):
        return Changes()
    if plan.outcome is not None:
        return None
    asker = asker_of(job.kind)
    if asker is not None:
        return asker.answered(ledger, job)
    return answered_end(ledger, job) if not plan.has_steps else None


def _end_as_answered(ledger: Ledger, mission: MissionRow, plan: PlanRow, ends: Ends) -> None:
    error = None if ends.failed is None else agent_error(ends.failed, mission.uid, ledger.tx.now)
    said = None if ends.claimed_in is None else said_in(ledger, mission, ends.claimed_in)
    if ends.of_mission:
        plan.outcome = ends.end.outcome
        end_mission(ledger, mission, ends.end, error, said)
    else:
        end_plan(ledger, plan, ends.end, error, said, claimed_in=ends.claimed_in)


def _end_with_job(ledger: Ledger, mission: MissionRow, job: JobRow, error: str | None) -> None:
    """End a mission of which a job has failed (R10)."""
    message = f"job {job.id} ({job.kind}) failed, and on_job_failure is fail"
    end = End(Outcome.JOB_FAILED, succeeded=False, message=message)
    assert mission.root_plan is not None
    end_plan(ledger, ledger.plan(mission.root_plan), end, error)


def _end_by_rule(ledger: Ledger, mission: MissionRow, plan: PlanRow) -> None:
    """End a stated plan of which nothing is left."""
    end, failed, result = steps().end(ledger, plan)
    error = None if failed is None else agent_error(failed, mission.uid, ledger.tx.now)
    end_plan(ledger, plan, end, error, result)


def _end_without_reply(ledger: Ledger, mission: MissionRow, turn: JobRow) -> None:
    """End the plan of a turn that a person refused to reply to, as if its planner had failed."""
    mission.asking = None
    message = f"turn {turn.id} got no reply: {turn.reason}"
    advice = f"Resume mission {mission.id} to be asked again (`lcp resume {mission.id}`)."
    failed = Failed(ErrorCode.PLANNER_FAILED, message, advice=advice)
    error = agent_error(failed, mission.uid, ledger.tx.now)
    end = End(Outcome.JOB_FAILED, succeeded=False, message=message)
    end_plan(ledger, acting_plan(ledger, turn), end, error)
    if turn.role is Role.STEP:
        after_settling(ledger, turn, error)


def continue_stated(ledger: Ledger, mission: MissionRow, plan: PlanRow) -> None:
    """Go on with a reopened plan whose steps may begin, and end it again if none does."""
    _Advance(ledger, mission, plan, Event.SETTLED).go_on(is_released=True)


def refresh(ledger: Ledger, mission: MissionRow) -> None:
    """Unblock the next turn, and update the status: waiting if nothing is queued or running and a job is held."""
    if mission.has_ended:
        return
    unblock_turn(ledger, mission)
    waits = mission.queued + mission.running == 0 and mission.held > 0
    status = "waiting" if waits else "running"
    if mission.status != status:
        mission.status = status
        seq = ledger.note(mission, "mission_waits" if waits else "mission_goes_on")
        if waits:
            ledger.tx.now_waiting[mission.id] = seq
        else:
            ledger.tx.now_waiting.pop(mission.id, None)


def said_in(ledger: Ledger, mission: MissionRow, number: int) -> str | None:
    """The action in the reply to a question, as the result of its turn."""
    asked = question(ledger.tx, mission.id, number)
    return None if asked is None else ledger.result(asked.job_id)


def end_plan(
    ledger: Ledger, plan: PlanRow, end: End, error: str | None, result: str | None = None,
    *, claimed_in: int | None = None,
) -> None:  # fmt: skip
    """End a plan: the mission for the root plan, else the job that began it, with the action as `result` (R12).

    A mission for which a person is asked first ends later. `claimed_in` is the question whose reply ends it.
    """
    mission = ledger.mission(plan.mission_id)
    if plan.job_id is None:
        gate = (
            None if mission.has_ended else next((one for one in end_gates() if one.concerns(mission)), None)
        )
        # Of a mission that fails a person may still take what it did.
        if gate is None or not end.succeeded:
            plan.outcome = end.outcome
            end_mission(ledger, mission, end, error, result)
        if gate is not None:
            if gate.ask(ledger, mission, plan, end, claimed_in) is False:
                end_plan(ledger, plan, end, error, result, claimed_in=claimed_in)
            refresh(ledger, mission)
        return
    plan.outcome = end.outcome
    over = {plan.id, *_end_sub_plans(ledger, mission, end.outcome, within=plan)}
    turns = [job for plan_id in sorted(over) for job in open_turns(ledger, ledger.plan(plan_id))]
    _settle_all(ledger, mission, turns, SKIP, because(ReasonCode.PLAN_ENDED))
    owner = ledger.job(plan.job_id)
    if owner.state is State.BLOCKED:
        ledger.move(owner, PLAN_SUCCEED if end.succeeded else PLAN_FAIL, result=result, error=error)
        after_settling(ledger, owner, error)


def end_mission(
    ledger: Ledger, mission: MissionRow, end: End, error: str | None = None, result: str | None = None
) -> None:
    """End a mission: queued work completes, held work can still be approved, no turn follows (R8).

    `result` is the action that completes it, whose findings are stored.
    """
    if mission.has_ended:
        return
    mission.status = "completed" if end.succeeded else "failed"
    for one in observers():
        one.ended(ledger, mission, end, error)
    _end_sub_plans(ledger, mission, end.outcome)
    found = findings_in(from_json(result)) if result is not None and end.succeeded else NOTHING_FOUND
    _close_mission(ledger, mission, end, error, findings=found)
    # A step that waits for another one would wait for ever.
    turns = [
        job for job in live_jobs(ledger, mission) if job.role is not Role.WORK or job.state is State.BLOCKED
    ]
    _settle_all(ledger, mission, turns, SKIP, because(ReasonCode.MISSION_ENDED))


def cancel_mission(ledger: Ledger, mission: MissionRow, by: str) -> None:
    """Stop a mission: its unsettled jobs are cancelled, and running attempts lose their lease.

    A mission that has ended keeps its outcome.
    """
    reason = because(ReasonCode.CANCELLED_BY, by=by)
    if not mission.has_ended:
        mission.status = "cancelled"
        _end_sub_plans(ledger, mission, Outcome.CANCELLED)
        end = End(Outcome.CANCELLED, succeeded=False, message=reason.text)
        _close_mission(ledger, mission, end, None, by=by)
    _settle_all(ledger, mission, live_jobs(ledger, mission), CANCEL, reason)


def cancel_sub_plans(ledger: Ledger, mission: MissionRow, limit: str, turn: JobRow) -> None:
    """Cancel the sub-plans of a mission that reached a limit; the root plan gets the last turn (R6).

    `turn` is the one that found out; if it belongs to a sub-plan, it is settled.
    """
    ended = _end_sub_plans(ledger, mission, f"limit:{limit}")
    owners = {ledger.plan(plan_id).job_id for plan_id in ended}
    stopped = [
        job
        for job in live_jobs(ledger, mission)
        if (job.plan_id in ended or job.id in owners)
        and (job.role is not Role.WORK or job.state is not State.RUNNING)
    ]
    _settle_all(ledger, mission, stopped, CANCEL, because(ReasonCode.LIMIT_REACHED, limit=limit))
    settled = [job for job in (turn, *stopped) if job.state in SETTLED]
    assert mission.root_plan is not None
    root = ledger.plan(mission.root_plan)
    if root.has_steps:
        for job in settled:
            if job.plan_id == root.id:
                after_settling(ledger, job)
        return
    for job in settled:
        release_followers(ledger, job)
    if root.open == 0 and root.outcome is None:
        queue_turn(ledger, root)
    refresh(ledger, mission)


def _has_news(ledger: Ledger, plan: PlanRow) -> bool:
    """True if a job of the plan was executed, or a person sent it a message, since its last question."""
    settled = settled_jobs(ledger.tx, plan.id, plan.asked_seq, ledger.mission(plan.mission_id).events)
    executed = any(row[_STATE] in (State.SUCCEEDED, State.FAILED) for row in settled)
    return executed or has_new_message(ledger, plan, plan.asked_seq)


def _end_sub_plans(
    ledger: Ledger, mission: MissionRow, outcome: str, *, within: PlanRow | None = None
) -> set[int]:
    """End the mission's sub-plans, or those begun in the plan `within`; the ids of those that were open."""
    ended: set[int] = set()
    # Oldest first, so that plans begun in one of these are found as well.
    for plan_id in open_sub_plans(ledger.tx, mission.id):
        plan = ledger.plan(plan_id)
        # The ledger may have ended it in this transaction, which the database does not show yet.
        if plan.outcome is None and (within is None or plan.parent_id in {within.id, *ended}):
            plan.outcome = outcome
            ended.add(plan.id)
    return ended


def _settle_all(
    ledger: Ledger, mission: MissionRow, jobs: Iterable[JobRow], transition: Transition, reason: Reason
) -> None:
    """Take those of the jobs through a transition that are in a state where it begins."""
    for job in jobs:
        if job.state in transition.sources:
            if job.state is State.RUNNING:
                ledger.attempted(job, transition.event)
            ledger.move(job, transition, reason=reason)
            if mission.asking == job.id:
                mission.asking = None


def _close_mission(
    ledger: Ledger,
    mission: MissionRow,
    end: End,
    error: str | None,
    *,
    by: str | None = None,
    findings: Findings = NOTHING_FOUND,
) -> None:
    mission.outcome = end.outcome
    if mission.root_plan is not None:
        ledger.plan(mission.root_plan).outcome = end.outcome
    mission.asking = None
    paths = written_paths(ledger.tx, mission.id)
    metrics: dict[str, JsonValue] = {
        "turns": mission.turns,
        "jobs_succeeded": mission.succeeded,
        "jobs_failed": mission.failed,
        "files_written": len(paths),
        "bytes_written": mission.bytes_written,
        "running_seconds": round(usage_of(mission, ledger.tx.now).seconds, 3),
    }
    data: dict[str, JsonValue] = {"outcome": end.outcome}
    if by is not None:
        data["by"] = by
    if end.limit is not None:
        metrics["limit"] = data["limit"] = end.limit
    if end.failed_checks:
        name = "declined_unmet" if end.is_declined else "accepted_unmet"
        metrics[name] = data[name] = list(end.failed_checks)
    ledger.note(mission, f"mission_{mission.status}", None, data)
    missions.end_mission(
        ledger.tx,
        mission.id,
        summary=end.message,
        deliverables=paths,
        metrics=metrics,
        error=error,
        findings=findings,
    )


def ask_person(
    ledger: Ledger, mission: MissionRow, plan: PlanRow, turn: JobRow, asked: AskPerson, *, claimed_in: int
) -> int:
    """Ask a person in the engine's name with a held job of the plan; its id. No cap counts it (R9, R13).

    `claimed_in` is the question whose reply made the claim that the person decides about.
    """
    options: list[JsonValue] = list(asked.options)
    job_id = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            turn=turn.turn,
            parent_id=turn.id,
            kind=KIND,
            params=to_json({"question": asked.question, "options": options}),
            state=State.HELD,
            reason=because(ReasonCode.QUESTION),
            depth=plan.depth,
        ),
    )
    unmet: list[JsonValue] = list(asked.failed_checks)
    claim = {} if asked.claim is None else {**record_of(asked.claim, claimed_in), "unmet": unmet}
    ledger.note(mission, ASKED, job_id, claim)
    return job_id


def answered_end(ledger: Ledger, job: JobRow) -> Ends | None:
    """End of a plan by the answer to a question of `ask_person`; None if the plan continues, and for other jobs."""
    if job.kind != KIND or job.state is not State.SUCCEEDED or job.fingerprint is not None:
        return None
    data = event_data(ledger.tx, job.mission_id, job.id, ASKED)
    claimed, result, unmet = claim_in(data), ledger.result(job.id), data.get("unmet")
    if claimed is None or result is None:
        return None
    claim, number = claimed
    listed = tuple(map(str, unmet)) if isinstance(unmet, list) else ()
    options = from_json(job.params).get("options")
    answer = from_json(result).get("answer")
    if not isinstance(options, list) or answer not in options:
        return None
    end = end_by_person(claim, listed, options.index(answer))
    if end is None:
        return None
    failed = None if end.succeeded else failure_of(end, job.mission_id)
    return Ends(end, failed, number)


def has_new_message(ledger: Ledger, plan: PlanRow, since_seq: int) -> bool:
    """True if a person sent the plan a message after event `since_seq`."""
    now = ledger.mission(plan.mission_id).events
    return bool(said_to(ledger.tx, plan.mission_id, plan.id, since_seq, now))
