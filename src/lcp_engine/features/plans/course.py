"""Decide how a plan that its mission states goes on when a step has ended, and how it ends (R27)."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue

from lcp_engine.core.decide import End, Outcome
from lcp_engine.core.follow import Stated
from lcp_engine.core.job_states import RETRY_BLOCKED, RETRY_HELD, SETTLED, SKIP, UNBLOCK, Need, Role, State
from lcp_engine.core.limits.terms import terms_of
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.core.safe_text import shortened
from lcp_engine.engine.points import PlanType
from lcp_engine.engine.turn_queue import begun_plan, release_followers
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.features.plans.expression import StepFacts, is_true, parse_expression
from lcp_engine.features.plans.steps import (
    admit,
    asks_planner,
    begin_answered,
    check_plans,
    from_text,
    prepare_plans,
    store_plan,
    whole_steps_before,
)
from lcp_engine.features.plans.store.stated_plans import (
    MOST_COMPARED,
    answered_plans,
    count_steps,
    error_of,
    stated_plan,
    steps_of_plan,
    unsettled_steps,
)
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.edges import followers_of
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import unanswered_hold
from lcp_engine.store.row_types import JobRow, PlanRow

ABORT, CONTINUE, FALL_BACK = "abort_plan", "continue_plan", "execute_fallback"
_FAILED = {State.FAILED: "failed", State.REJECTED: "was rejected", State.CANCELLED: "was cancelled"}
_MOST_WORDS = 300
MOST_TOLD = 100_000
"""Characters of results that the result of a planner's plan repeats."""


def look_at(ledger: Ledger, plan: PlanRow, step: JobRow | None) -> Stated:
    """The failures of a stated plan, and whether `step`, which has ended, is one that nothing handles.

    A step is handled if a condition of another one waits for its failure, or asks how it ended.
    """
    is_fault = step is not None and step.terms is not None and step.state in _FAILED
    return Stated(
        is_fault=is_fault and step is not None and not is_handled(ledger, step),
        is_tolerant=plan.on_failure == CONTINUE,
        is_stopped=is_aborted(plan),
        falls_back=plan.on_failure == FALL_BACK,
    )


def note_fault(plan: PlanRow, step: JobRow) -> None:
    """Remember the first failed step that nothing handles."""
    plan.failed_job = plan.failed_job or step.id


def forget_fault(plan: PlanRow, step: JobRow) -> None:
    """Drop the failed step that is remembered, if it is tried again."""
    if plan.failed_job == step.id:
        plan.failed_job = None


def is_handled(ledger: Ledger, step: JobRow) -> bool:
    """True if a condition of another step is about how this one ends, or about its failure."""
    return any(needs is not Need.SUCCESS for _, needs in followers_of(ledger.tx, step))


def is_aborted(plan: PlanRow) -> bool:
    """True if a stated plan begins no further step, since one has failed."""
    return plan.failed_job is not None and plan.on_failure != CONTINUE


def skip_rest(ledger: Ledger, plan: PlanRow) -> None:
    """Skip the steps that an aborted plan has not begun; those that run come to their end."""
    assert plan.failed_job is not None
    failed = ledger.job(plan.failed_job)
    mission = ledger.mission(plan.mission_id)
    for job in unsettled_steps(ledger.tx, plan.id):
        if job.state in SKIP.sources:
            ledger.move(job, SKIP, reason=_aborted_by(failed))
            if mission.asking == job.id:
                mission.asking = None


def begin_fallback(ledger: Ledger, plan: PlanRow) -> None:
    """Begin the plan that an aborted one falls back to, once."""
    mission = ledger.mission(plan.mission_id)
    stated = from_text(stated_plan(ledger.tx, mission.id, plan.stated or ""))
    assert stated.fallback is not None
    plan.outcome = Outcome.JOB_FAILED
    ledger.note(mission, "fell_back", plan.failed_job, {"plan": plan.stated, "to": stated.fallback})
    store_plan(ledger, mission, from_text(stated_plan(ledger.tx, mission.id, stated.fallback)), parent=plan)


def end_by_rule(ledger: Ledger, plan: PlanRow) -> tuple[End, Failed | None, str | None]:
    """End of a finished plan, why it has failed, and the result of the job that stands for a planner's plan."""
    told = _told(count_steps(ledger.tx, plan.id))
    if plan.job_id is None and plan.parent_id is not None:
        first = ledger.plan(plan.parent_id)
        told = f"{_step(ledger, first)}; the fallback {plan.stated}: {told}"
    outcome, failed = Outcome.PLAN_COMPLETE, None
    if plan.failed_job is not None:
        outcome, told = Outcome.PLAN_INCOMPLETE, f"{_step(ledger, plan)}; {told}"
    if is_aborted(plan):
        outcome, data = Outcome.JOB_FAILED, {"outcome": Outcome.JOB_FAILED, "job": plan.failed_job}
        command = f"lcp resume {plan.mission_id}" if plan.job_id is None else f"lcp retry {plan.job_id}"
        advice = f"Correct what the message names, then continue the plan (`{command}`)."
        failed = Failed(ErrorCode.WORKER_FAILED, told, data, advice)
    end = End(outcome, succeeded=failed is None, message=told)
    return end, failed, None if plan.job_id is None else _what_came_of(ledger, plan, end)


def _what_came_of(ledger: Ledger, plan: PlanRow, end: End) -> str:
    """The result of the job that stands for a planner's plan: its steps, with their results as far as there is room."""
    room, steps = MOST_TOLD, list[JsonValue]()
    for job in steps_of_plan(ledger.tx, plan.id):
        told: dict[str, JsonValue] = {"id": terms_of(job.terms or "").step, "state": job.state}
        result = ledger.result(job.id) if job.state is State.SUCCEEDED else None
        if result is not None and len(result) <= room:
            room -= len(result)
            told["result"] = from_json(result)
        elif result is not None:
            told["result_characters"] = len(result)
        steps.append(told)
    return to_json({"action": end.outcome, "summary": end.message, "steps": steps})


def _aborted_by(failed: JobRow) -> Reason:
    step = terms_of(failed.terms).step if failed.terms is not None else ""
    return because(
        ReasonCode.PLAN_ABORTED, step=step, job=failed.id, fault=_FAILED.get(failed.state, "ended")
    )


def _step(ledger: Ledger, plan: PlanRow) -> str:
    """The step that failed first, and why, in words."""
    assert plan.failed_job is not None
    job = ledger.job(plan.failed_job)
    step = terms_of(job.terms).step if job.terms is not None else job.kind
    error = error_of(ledger.tx, job.id)
    said = None if error is None else from_json(error).get("user_message")
    why = f": {shortened(str(said), _MOST_WORDS)}" if said else ""
    return f"{step} {_FAILED.get(job.state, 'ended')}{why}"


def _told(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    said = [f"{counts.get(State.SUCCEEDED, 0):,} of {total:,} steps succeeded"]
    for state, words in ((State.FAILED, "failed"), (State.REJECTED, "rejected"), (State.SKIPPED, "skipped")):
        if counts.get(state):
            said.append(f"{counts[state]:,} {words}")
    return ", ".join(said)


def take_up(ledger: Ledger, plan: PlanRow, go_on: Callable[[PlanRow, str], None]) -> None:
    """Let the steps of a reopened plan that did not come to a good end wait or run again; handled failures stay.

    `go_on` continues the plan that a step had begun, and is given a notice for its planner.
    """
    plan.failed_job = None
    for step in steps_of_plan(ledger.tx, plan.id):
        step.failures = step.deaths = 0
        if step.state is State.REJECTED:
            reason = unanswered_hold(ledger.tx, step) or because(ReasonCode.HELD_BEFORE)
            ledger.move(step, RETRY_HELD, reason=reason)
        elif step.state in RETRY_BLOCKED.sources and not (
            step.state is State.FAILED and is_handled(ledger, step)
        ):
            ended_as, begun = step.state, begun_plan(ledger, step) if step.role is Role.STEP else None
            ledger.move(step, RETRY_BLOCKED, reason=ReasonCode.STEP_ORDER if begun is None else None)
            if begun is not None:
                begun.reopen()
                go_on(begun, f"a person resumed the mission; before, this step was {ended_as}")
    for known in steps_of_plan(ledger.tx, plan.id):
        step = ledger.job(known.id)  # those before it may have moved it
        may_begin = step.state is State.BLOCKED and not step.waits_for
        if step.state in SETTLED or (may_begin and not begin_step(ledger, step)):
            release_followers(ledger, step)


def begin_step(ledger: Ledger, step: JobRow) -> bool:
    """Let a blocked step of a stated plan begin, if its condition holds; otherwise it is skipped, and this is False."""
    condition = None if step.terms is None else terms_of(step.terms).condition
    if condition is not None and not _holds(ledger, step, condition):
        ledger.move(step, SKIP, reason=because(ReasonCode.CONDITION_UNMET, condition=condition))
        return False
    if step.state is State.BLOCKED and step.role is Role.WORK:
        ledger.move(step, UNBLOCK)
    return True


def _holds(ledger: Ledger, step: JobRow, condition: str) -> bool:
    ledger.write_results()
    before = whole_steps_before(ledger.tx, step.id, MOST_COMPARED)
    return is_true(
        parse_expression(condition), {one.step: StepFacts(one.state, one.result) for one in before}
    )


STEPS = PlanType(
    keys=("plan", "fallback_plans"),
    look=look_at,
    note_fault=note_fault,
    forget_fault=forget_fault,
    is_done=lambda plan: plan.failed_job is None,
    skip_rest=skip_rest,
    replace=begin_fallback,
    end=end_by_rule,
    begin=begin_step,
    take_up=take_up,
    check=check_plans,
    asks_planner=asks_planner,
    prepare=prepare_plans,
    answer=begin_answered,
    answered=lambda ledger, plan: [ledger.plan(id_) for id_ in answered_plans(ledger.tx, plan)],
    admit=admit,
)
