"""Move plans and missions on: ask again, wait, end what is over (R6 to R8, R12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pydantic import JsonValue
from sqlalchemy import bindparam, select, update

from lcp_engine.core.decide import End, Outcome, Usage
from lcp_engine.core.job_states import CANCEL, PLAN_FAIL, PLAN_SUCCEED, SKIP, Role, State, Transition
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.engine.failure import agent_error, failure_of
from lcp_engine.engine.plans.escalation import answered_end
from lcp_engine.engine.plans.operator_messages import is_unheard
from lcp_engine.engine.plans.steps import has_follower, skip_stranded
from lcp_engine.engine.plans.turn_queue import acting_plan, is_asking, queue_turn, unblock_turn
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.store.changes import changed_paths
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.db.transaction import Statement
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queue import live_jobs
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.store.schema import missions, plans
from lcp_engine.store.turns import settled_jobs

_Choice: TypeAlias = Callable[[JobRow], bool]

_STATE = 4
"""Where the state stands in a row of `settled_jobs`."""
_SUB_PLANS = Statement(
    select(plans.c.id)
    .where(plans.c.mission_id == bindparam("mission"), plans.c.job_id.is_not(None), plans.c.outcome.is_(None))
    .order_by(plans.c.id)
)
_END = Statement(
    update(missions)
    .where(missions.c.id == bindparam("mission"))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("summary", "deliverables", "metrics", "error", "ended_at")
        }
    )
)


def usage_of(mission: MissionRow, now: int) -> Usage:
    ran = mission.ran + (max(0, now - mission.running_since) if mission.running_since is not None else 0)
    return Usage(mission.turns, ran / 1_000_000, mission.input_tokens + mission.output_tokens)


def after_settling(ledger: Ledger, job: JobRow, error: str | None = None) -> None:
    """What a settled job means for its plan: the next turn, once nothing of the plan goes on by itself (R7)."""
    mission = ledger.mission(job.mission_id)
    if job.plan_id is None or mission.has_ended:
        refresh(ledger, mission)
        return
    plan = ledger.plan(job.plan_id)
    end = answered_end(ledger, job) if plan.outcome is None else None
    if end is not None:
        failed = None if end.succeeded else agent_error(failure_of(end), mission.uid, ledger.tx.now)
        end_plan(ledger, plan, end, failed)
        return
    spec = spec_of(mission.spec)
    if job.state is State.FAILED and spec.on_job_failure == "fail":
        message = f"job {job.id} ({job.kind}) has failed, and on_job_failure is fail"
        end_mission(ledger, mission, End(Outcome.JOB_FAILED, succeeded=False, message=message), error)
        return
    if job.role is Role.STEP:
        skip_stranded(ledger, mission)
        unblock_turn(ledger, mission)
    # A step that is held goes on with the plan it belongs to, not with another turn.
    waits = job.role is Role.STEP and plan.held > 0 and has_follower(ledger, mission, job)
    is_over = plan.open == 0 and not is_asking(ledger, plan)
    if plan.outcome is None and not waits and (spec.continue_ == "per_result" or is_over):
        queue_turn(ledger, plan)
    refresh(ledger, mission)


def after_rejecting(ledger: Ledger, job: JobRow) -> None:
    """When the last held job of a plan is rejected and nothing else goes on, a turn is queued with the reasons."""
    mission = ledger.mission(job.mission_id)
    if mission.asking == job.id:
        _end_without_reply(ledger, mission, job)
        return
    if job.plan_id is not None and not mission.has_ended:
        plan = ledger.plan(job.plan_id)
        if job.role is Role.STEP:
            skip_stranded(ledger, mission)
        if plan.outcome is None and plan.open == 0 and plan.held == 0:
            queue_turn(ledger, plan)
    refresh(ledger, mission)


def _end_without_reply(ledger: Ledger, mission: MissionRow, turn: JobRow) -> None:
    """A turn to which no person brings a reply ends its plan, like one whose planner gives none."""
    mission.asking = None
    message = f"turn {turn.id} got no reply: {turn.reason}"
    error = agent_error(Failed(ErrorCode.PLANNER_FAILED, message), mission.uid, ledger.tx.now)
    end = End(Outcome.JOB_FAILED, succeeded=False, message=message)
    end_plan(ledger, acting_plan(ledger, turn), end, error)
    if turn.role is Role.STEP:
        after_settling(ledger, turn, error)
    refresh(ledger, mission)


def after_holding(ledger: Ledger, plan: PlanRow) -> None:
    """A plan that comes to a stop at held jobs is asked again where the planner has not seen yet what else happened.

    Also where nothing of its own is held: what it asked for is held for another plan, and no decision about that
    would ever come to this one.
    """
    if plan.outcome is not None or plan.open > 0 or is_asking(ledger, plan):
        return
    if plan.held == 0 or _has_news(ledger, plan):
        queue_turn(ledger, plan)


def refresh(ledger: Ledger, mission: MissionRow) -> None:
    """Unblock the next turn, and set the status: waiting when nothing is queued or running and something is held."""
    if mission.has_ended:
        return
    unblock_turn(ledger, mission)
    waits = mission.queued + mission.running == 0 and mission.held > 0
    status = "waiting" if waits else "running"
    if mission.status != status:
        mission.status = status
        (ledger.tx.now_waiting.add if waits else ledger.tx.now_waiting.discard)(mission.id)
        ledger.note(mission, "mission_waits" if waits else "mission_goes_on")


def end_plan(ledger: Ledger, plan: PlanRow, end: End, error: str | None, result: str | None = None) -> None:
    """End a plan: the mission for the root plan, else the job that began it, with the action as `result` (R12)."""
    mission = ledger.mission(plan.mission_id)
    plan.outcome = end.outcome
    if plan.job_id is None:
        end_mission(ledger, mission, end, error)
        return
    over = {plan.id, *_end_sub_plans(ledger, mission, end.outcome, within=plan)}
    _settle_live(
        ledger,
        mission,
        SKIP,
        because(ReasonCode.PLAN_ENDED),
        lambda job: job.plan_id in over and job.role is not Role.WORK,
    )
    owner = ledger.job(plan.job_id)
    if owner.state is State.BLOCKED:
        ledger.move(owner, PLAN_SUCCEED if end.succeeded else PLAN_FAIL, result=result, error=error)
        after_settling(ledger, owner, error)


def end_mission(ledger: Ledger, mission: MissionRow, end: End, error: str | None = None) -> None:
    """End a mission. Queued work completes, held work can still be approved, no turn follows (R8)."""
    if mission.has_ended:
        return
    mission.status = "completed" if end.succeeded else "failed"
    _end_sub_plans(ledger, mission, end.outcome)
    _close_mission(ledger, mission, end, error)
    _settle_live(
        ledger, mission, SKIP, because(ReasonCode.MISSION_ENDED), lambda job: job.role is not Role.WORK
    )


def cancel_mission(ledger: Ledger, mission: MissionRow, by: str) -> None:
    """Stop a mission: nothing of it runs any more; attempts that are under way lose their lease.

    One that has ended keeps its outcome; what was left of it is cancelled.
    """
    reason = because(ReasonCode.CANCELLED_BY, by=by)
    if not mission.has_ended:
        mission.status = "cancelled"
        _end_sub_plans(ledger, mission, Outcome.CANCELLED)
        end = End(Outcome.CANCELLED, succeeded=False, message=reason.text)
        _close_mission(ledger, mission, end, None, by=by)
    _settle_live(ledger, mission, CANCEL, reason, lambda job: True)


def cancel_sub_plans(ledger: Ledger, mission: MissionRow, limit: str) -> None:
    """A limit is reached: sub-plans are cancelled, and the root plan gets the last turn (R6)."""
    ended = _end_sub_plans(ledger, mission, f"limit:{limit}")
    owners = {ledger.plan(plan_id).job_id for plan_id in ended}
    reason = because(ReasonCode.LIMIT_REACHED, limit=limit)
    _settle_live(
        ledger, mission, CANCEL, reason,
        lambda job: (job.plan_id in ended or job.id in owners)
        and (job.role is not Role.WORK or job.state is not State.RUNNING),
    )  # fmt: skip
    skip_stranded(ledger, mission)
    assert mission.root_plan is not None
    root = ledger.plan(mission.root_plan)
    if root.open == 0 and root.outcome is None:
        queue_turn(ledger, root)
    refresh(ledger, mission)


def _has_news(ledger: Ledger, plan: PlanRow) -> bool:
    """Whether a job of the plan was executed, or a person has spoken, since its last question."""
    settled = settled_jobs(ledger.tx, plan.id, plan.asked_seq, ledger.mission(plan.mission_id).events)
    executed = any(row[_STATE] in (State.SUCCEEDED, State.FAILED) for row in settled)
    return executed or is_unheard(ledger, plan, plan.asked_seq)


def _end_sub_plans(
    ledger: Ledger, mission: MissionRow, outcome: str, *, within: PlanRow | None = None
) -> set[int]:
    """No turn of a sub-plan (begun in a plan, or any) counts any more; the ids of those that had not ended."""
    ended: set[int] = set()
    # The oldest first, so that all below one another are found.
    for row in ledger.tx.rows(_SUB_PLANS, mission=mission.id):
        plan = ledger.plan(int(row[0]))
        # What this transaction decided is not in the database yet.
        if plan.outcome is None and (within is None or plan.parent_id in {within.id, *ended}):
            plan.outcome = outcome
            ended.add(plan.id)
    return ended


def _settle_live(
    ledger: Ledger, mission: MissionRow, transition: Transition, reason: Reason, chosen: _Choice
) -> None:
    for job in live_jobs(ledger, mission):
        if job.state in transition.sources and chosen(job):
            if job.state is State.RUNNING:
                ledger.attempted(job, transition.event)
            ledger.move(job, transition, reason=reason)
            if mission.asking == job.id:
                mission.asking = None


def _close_mission(
    ledger: Ledger, mission: MissionRow, end: End, error: str | None, *, by: str | None = None
) -> None:
    mission.outcome = end.outcome
    if mission.root_plan is not None:
        ledger.plan(mission.root_plan).outcome = end.outcome
    mission.asking = None
    paths = changed_paths(ledger.tx, mission.id)
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
        metrics["accepted_unmet"] = data["accepted_unmet"] = list(end.failed_checks)
    ledger.note(mission, f"mission_{mission.status}", None, data)
    ledger.tx.run(
        _END,
        mission=mission.id,
        new_summary=end.message,
        new_deliverables=to_json(list(paths)),
        new_metrics=to_json(metrics),
        new_error=error,
        new_ended_at=ledger.tx.now,
    )
