"""Advance plans by a chain of conditions, as before `follow`: the model test compares both."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from pydantic import JsonValue

from lcp_engine.core.decide import AskPerson, Claim, End, Outcome, Usage, end_by_person
from lcp_engine.core.job_states import CANCEL, PLAN_FAIL, PLAN_SUCCEED, SETTLED, SKIP, Role, State, Transition
from lcp_engine.core.kinds import MERGE
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.engine.failure import agent_error, failure_of
from lcp_engine.engine.lessons import keep_failure
from lcp_engine.engine.limit_holds import is_about_limit, settle_limit
from lcp_engine.engine.merges import CLAIMED, CLAIMED_IN, is_staged, request_merge
from lcp_engine.engine.plan_course import (
    _FAILED,
    CONTINUE,
    FALL_BACK,
    end_by_rule,
    is_aborted,
    is_handled,
    skip_rest,
    what_came_of,
)
from lcp_engine.engine.plan_steps import from_text, store_plan
from lcp_engine.engine.turn_queue import (
    acting_plan,
    begin_step,
    has_follower,
    is_asking,
    queue_turn,
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
from lcp_engine.store.stated_plans import stated_plan
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
    mission = ledger.mission(job.mission_id)
    if job.plan_id is None or mission.has_ended:
        refresh(ledger, mission)
        return
    if is_about_limit(ledger, job):
        settle_limit(ledger, job)
        refresh(ledger, mission)
        return
    plan = ledger.plan(job.plan_id)
    if job.kind == MERGE and _end_after_merge(ledger, mission, plan, job):
        return
    if plan.on_failure is not None:
        _advance_stated(ledger, mission, plan, job)
        return
    end = answered_end(ledger, job) if plan.outcome is None else None
    if end is not None:
        failed = (
            None if end.succeeded else agent_error(failure_of(end, mission.id), mission.uid, ledger.tx.now)
        )
        number = event_data(ledger.tx, job.mission_id, job.id, ASKED).get(CLAIMED_IN)
        number = number if isinstance(number, int) else None
        said = None if number is None else said_in(ledger, mission, number)
        end_plan(ledger, plan, end, failed, said, claimed_in=number)
        return
    spec = spec_of(mission.spec)
    if job.state is State.FAILED and spec.on_job_failure == "fail":
        message = f"job {job.id} ({job.kind}) failed, and on_job_failure is fail"
        end = End(Outcome.JOB_FAILED, succeeded=False, message=message)
        assert mission.root_plan is not None
        _end_root_plan(ledger, mission, ledger.plan(mission.root_plan), end, error)
        return
    release_followers(ledger, job)
    if job.role is Role.STEP:
        unblock_turn(ledger, mission)
    # The next step continues a plan with a held job, not another turn.
    waits = job.role is Role.STEP and plan.held > 0 and has_follower(ledger, job)
    is_over = plan.open == 0 and not is_asking(ledger, plan) and not _awaits_decision(spec, plan)
    if plan.outcome is None and not waits and (spec.continue_ == "per_result" or is_over):
        queue_turn(ledger, plan)
    refresh(ledger, mission)


def _awaits_decision(spec: MissionSpec, plan: PlanRow) -> bool:
    """True if the planner gets its next turn only when a person has decided on every held job of the plan."""
    return spec.continue_ == "per_decision" and plan.held > 0


def after_rejecting(ledger: Ledger, job: JobRow) -> None:
    """Advance the plan of a rejected job: queue a turn with the reasons if nothing else of the plan is open."""
    mission = ledger.mission(job.mission_id)
    if is_about_limit(ledger, job):
        settle_limit(ledger, job)
        refresh(ledger, mission)
        return
    if mission.asking == job.id:
        _end_without_reply(ledger, mission, job)
        return
    if job.plan_id is not None and not mission.has_ended:
        plan = ledger.plan(job.plan_id)
        if job.kind == MERGE and _end_after_merge(ledger, mission, plan, job):
            return
        if plan.on_failure is not None:
            _advance_stated(ledger, mission, plan, job)
            return
        release_followers(ledger, job)
        if plan.outcome is None and plan.open == 0 and plan.held == 0:
            queue_turn(ledger, plan)
    refresh(ledger, mission)


def _end_after_merge(ledger: Ledger, mission: MissionRow, plan: PlanRow, job: JobRow) -> bool:
    """End the mission whose merge was settled. False if its planner goes on."""
    found = None if plan.outcome is not None else end_of_merge(ledger, job)
    if found is None:
        return False
    end, failed, number = found
    plan.outcome = end.outcome
    error = None if failed is None else agent_error(failed, mission.uid, ledger.tx.now)
    end_mission(ledger, mission, end, error, None if number is None else said_in(ledger, mission, number))
    return True


def _advance_stated(ledger: Ledger, mission: MissionRow, plan: PlanRow, step: JobRow) -> None:
    """Let a plan that the mission states go on after a step of it was settled, or end the mission by rule (R27)."""
    if note_failure(ledger, plan, step):
        _abort(ledger, mission, plan)
    elif not is_aborted(plan):
        release_followers(ledger, step)
    _end_if_over(ledger, mission, plan)
    refresh(ledger, mission)


def continue_stated(ledger: Ledger, mission: MissionRow, plan: PlanRow, steps: Iterable[JobRow]) -> None:
    """Let the steps of a reopened plan begin that may, and end the mission again if none does."""
    for known in steps:
        step = ledger.job(known.id)  # those before it may have moved it
        may_begin = step.state is State.BLOCKED and not step.waits_for
        if step.state in SETTLED or (may_begin and not begin_step(ledger, step)):
            release_followers(ledger, step)
    _end_if_over(ledger, mission, plan)
    refresh(ledger, mission)


def _abort(ledger: Ledger, mission: MissionRow, plan: PlanRow) -> None:
    """Begin no further step of a stated plan; the sub-plans of its steps end with it."""
    ended = _end_sub_plans(ledger, mission, Outcome.JOB_FAILED, within=plan)
    turns = [job for plan_id in sorted(ended) for job in open_turns(ledger, ledger.plan(plan_id))]
    _settle_all(ledger, mission, turns, SKIP, because(ReasonCode.PLAN_ENDED))
    skip_rest(ledger, plan)


def _end_if_over(ledger: Ledger, mission: MissionRow, plan: PlanRow) -> None:
    """End the mission of a stated plan of which nothing is left, unless another plan takes its place."""
    if not is_over(plan) or begin_fallback(ledger, plan):
        return
    end, failed = end_by_rule(ledger, plan)
    error = None if failed is None else agent_error(failed, mission.uid, ledger.tx.now)
    if plan.job_id is None:
        _end_root_plan(ledger, mission, plan, end, error)
    else:  # the planner that answered with it reads what came of it
        end_plan(ledger, plan, end, error, what_came_of(ledger, plan, end))


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
    refresh(ledger, mission)


def after_holding(ledger: Ledger, plan: PlanRow) -> None:
    """Queue a turn for a plan that only waits for held jobs, if its planner has not seen the other results yet.

    Also if none of the held jobs is its own: an equal job of another plan is held, and a decision on that does not
    advance this plan.
    """
    if plan.on_failure is not None:
        if is_aborted(plan):  # the step was running when another one failed
            skip_rest(ledger, plan)
            _end_if_over(ledger, ledger.mission(plan.mission_id), plan)
        return
    if plan.outcome is not None or plan.open > 0 or is_asking(ledger, plan):
        return
    spec = spec_of(ledger.mission(plan.mission_id).spec)
    if plan.held == 0 or (_has_news(ledger, plan) and not _awaits_decision(spec, plan)):
        queue_turn(ledger, plan)


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

    `claimed_in` is the question whose reply ends it.
    """
    mission = ledger.mission(plan.mission_id)
    if plan.job_id is None:
        _end_root_plan(ledger, mission, plan, end, error, result=result, claimed_in=claimed_in)
        return
    plan.outcome = end.outcome
    over = {plan.id, *_end_sub_plans(ledger, mission, end.outcome, within=plan)}
    turns = [job for plan_id in sorted(over) for job in open_turns(ledger, ledger.plan(plan_id))]
    _settle_all(ledger, mission, turns, SKIP, because(ReasonCode.PLAN_ENDED))
    owner = ledger.job(plan.job_id)
    if owner.state is State.BLOCKED:
        ledger.move(owner, PLAN_SUCCEED if end.succeeded else PLAN_FAIL, result=result, error=error)
        after_settling(ledger, owner, error)


def _end_root_plan(
    ledger: Ledger, mission: MissionRow, plan: PlanRow, end: End, error: str | None, *, result: str | None = None,
    claimed_in: int | None = None,
) -> None:  # fmt: skip
    """End the mission; one that works in a stage, and succeeds, ends when a person has decided on the merge.

    Of one that fails a person may still take what it did.
    """
    has_stage = is_staged(mission) and not mission.has_ended
    if not (has_stage and end.succeeded):
        plan.outcome = end.outcome
        end_mission(ledger, mission, end, error, result)
    if has_stage:
        request_merge(ledger, mission, plan, end, claimed_in)
        refresh(ledger, mission)


def end_mission(
    ledger: Ledger, mission: MissionRow, end: End, error: str | None = None, result: str | None = None
) -> None:
    """End a mission: queued work completes, held work can still be approved, no turn follows (R8).

    `result` is the action that completes it, whose findings are stored.
    """
    if mission.has_ended:
        return
    mission.status = "completed" if end.succeeded else "failed"
    if not end.succeeded:
        keep_failure(ledger, mission, end, error)
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
    if root.on_failure is not None:
        for job in settled:
            if job.plan_id == root.id and not mission.has_ended:
                _advance_stated(ledger, mission, root, job)
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
    claim: dict[str, JsonValue] = {}
    if asked.claim is not None:
        unmet: list[JsonValue] = list(asked.failed_checks)
        claim = {
            "outcome": asked.claim.outcome, "message": asked.claim.message, "unmet": unmet, CLAIMED_IN: claimed_in,
        }  # fmt: skip
    ledger.note(mission, ASKED, job_id, claim)
    return job_id


def answered_end(ledger: Ledger, job: JobRow) -> End | None:
    """End of a plan by the answer to a question of `ask_person`; None if the plan continues, and for other jobs."""
    if job.kind != KIND or job.state is not State.SUCCEEDED or job.fingerprint is not None:
        return None
    data = event_data(ledger.tx, job.mission_id, job.id, ASKED)
    result = ledger.result(job.id)
    if not data or result is None:
        return None
    message, unmet = data.get("message"), data.get("unmet")
    claim = Claim(Outcome(str(data["outcome"])), message if isinstance(message, str) else None)
    listed = tuple(map(str, unmet)) if isinstance(unmet, list) else ()
    options = from_json(job.params).get("options")
    answer = from_json(result).get("answer")
    if not isinstance(options, list) or answer not in options:
        return None
    return end_by_person(claim, listed, options.index(answer))


def has_new_message(ledger: Ledger, plan: PlanRow, since_seq: int) -> bool:
    """True if a person sent the plan a message after event `since_seq`."""
    now = ledger.mission(plan.mission_id).events
    return bool(said_to(ledger.tx, plan.mission_id, plan.id, since_seq, now))


def note_failure(ledger: Ledger, plan: PlanRow, step: JobRow) -> bool:
    """Note the first failed step that nothing handles. Whether the plan ends because of it.

    A step is handled if a condition of another one waits for its failure, or asks how it ended.
    """
    if step.state not in _FAILED or step.terms is None:
        return False
    if is_handled(ledger, step):
        return False
    if plan.failed_job is None:
        plan.failed_job = step.id
    return plan.on_failure != CONTINUE


def is_over(plan: PlanRow) -> bool:
    """True if nothing of a stated plan is left to do or to decide."""
    return plan.outcome is None and plan.open == 0 and plan.held == 0


def begin_fallback(ledger: Ledger, plan: PlanRow) -> bool:
    """Begin the plan that an aborted one falls back to, once. False if there is none."""
    if not is_aborted(plan) or plan.on_failure != FALL_BACK:
        return False
    mission = ledger.mission(plan.mission_id)
    stated = from_text(stated_plan(ledger.tx, mission.id, plan.stated or ""))
    assert stated.fallback is not None
    plan.outcome = Outcome.JOB_FAILED
    ledger.note(mission, "fell_back", plan.failed_job, {"plan": plan.stated, "to": stated.fallback})
    store_plan(ledger, mission, from_text(stated_plan(ledger.tx, mission.id, stated.fallback)), parent=plan)
    return True


def end_of_merge(ledger: Ledger, job: JobRow) -> tuple[End, Failed | None, int | None] | None:
    """End of the mission now that its merge is settled, why it failed, and the question that made the claim.

    None for a merge that was not done, if a planner goes on.
    """
    data = event_data(ledger.tx, job.mission_id, job.id, CLAIMED)
    if job.state is State.SUCCEEDED and data.get("succeeded") is True:
        message, limit, unmet = data.get("message"), data.get("limit"), data.get("unmet")
        number = data.get(CLAIMED_IN)
        end = End(
            str(data["outcome"]),
            succeeded=True,
            message=message if isinstance(message, str) else None,
            limit=limit if isinstance(limit, str) else None,
            failed_checks=tuple(map(str, unmet)) if isinstance(unmet, list) else (),
            is_declined=data.get("is_declined") is True,
        )
        return end, None, number if isinstance(number, int) else None
    has_planner = job.plan_id is None or ledger.plan(job.plan_id).on_failure is None
    if has_planner or data.get("succeeded") is not True:
        return None
    fact = f"was rejected: {job.reason}" if job.state is State.REJECTED else f"is {job.state}"
    message = f"the merge of its stage, job {job.id}, {fact}; the root is as it was"
    advice = "Change the plan as the person says, then launch it again."
    failed = Failed(ErrorCode.NOT_ALLOWED, message, {"outcome": Outcome.JOB_FAILED, "job": job.id}, advice)
    return End(Outcome.JOB_FAILED, succeeded=False, message=message), failed, None
