"""Launch, enqueue, cancel, resume, retry. One transaction each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from pydantic import BaseModel, JsonValue

from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import OPEN, RETRY, RETRY_BLOCKED, RETRY_HELD, Role, State
from lcp_engine.core.mission.parse import with_limits
from lcp_engine.core.mission.spec import Background, MissionSpec, spec_of
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.engine.limit_holds import was_declined
from lcp_engine.engine.people.approvals import locked_job, worker_of
from lcp_engine.engine.points import Begin, steps
from lcp_engine.engine.progress import cancel_mission, continue_stated, refresh
from lcp_engine.engine.turn_queue import (
    RESUMED,
    begun_plan,
    queue_question,
    queue_turn,
)
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.root_identity import KnownRoot, RootIdentity
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.edges import followers_of, unmet
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.missions import (
    NewMission,
    find_by_key,
    find_by_uid,
    find_open_by_key,
    insert_mission,
    move_root,
    release_key,
    reopen_mission,
)
from lcp_engine.store.people import unanswered_hold, was_rejected_by_person
from lcp_engine.store.queries.records import MissionStatus
from lcp_engine.store.queue import live_jobs
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.workers.base import ExecutedBy, Worker, Workers


class LaunchRequest(Protocol):
    """A request that a mission is launched for, once: its id, who asks in which session, and what turns are shown."""

    @property
    def id(self) -> str: ...
    @property
    def session_id(self) -> str | None: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def background(self) -> Background: ...


def launch(
    ledger: Ledger,
    spec: MissionSpec,
    root: Path,
    *,
    key: str | None = None,
    about: Mapping[str, JsonValue] | None = None,
    identity: RootIdentity | None = None,
    request: LaunchRequest | None = None,
    begin: Begin | None = None,
) -> int:
    """Store a mission with its first turn, or with what `begin` stores in place of it; its id.

    With a `key` that was used before, the id of that mission; the same holds for a `request` that a mission was
    launched for. `about` is added to the data of its first event. `identity` says which directory the root is.
    Raises `CONFLICT` for a request with other content than before.
    """
    if key is not None and (known := find_by_key(ledger.tx, key)) is not None:
        return known
    if request is not None:
        spec = spec.model_copy(update={"background": request.background})
        if (known := find_by_uid(ledger.tx, request.id)) is not None:
            return _launched_before(ledger.mission(known), spec)
    mission_id = _insert(ledger, spec, root, key=key, identity=identity, request=request)
    mission = ledger.mission(mission_id)
    if mission.root_plan is not None:
        return mission_id if request is None else _launched_before(mission, spec)
    ledger.note(mission, "launched", None, {"name": spec.name, **(about or {})})
    if begin is not None:
        begin(ledger, mission)
        return mission_id
    plan = ledger.new_plan(mission_id, job_id=None, parent_id=None, depth=0)
    mission.root_plan = plan.id
    queue_question(ledger, plan, {"user_prompt": spec.goal}, depth=0)
    return mission_id


def _launched_before(mission: MissionRow, spec: MissionSpec) -> int:
    """The id of the mission that a request was launched as. Raises `CONFLICT` if that had another content."""
    before = spec_of(mission.spec)
    known, new = before.background, spec.background
    # An older engine kept no more of a request than its goal.
    if known.content == new.content if known and new else before.goal == spec.goal:
        return mission.id
    message = f"request {mission.uid} was launched as mission {mission.id} with other content"
    raise LcpError(ErrorCode.CONFLICT, message, advice="Give the new request an id of its own.")


def open_queue(ledger: Ledger, name: str, last: int | None = None) -> int:
    """The id of the mission that holds jobs without a planner; `last` is the id that it had last.

    It is created if there is none, or if that one was cancelled; it may even be pruned.
    """
    if last is not None and _takes_jobs(ledger, last):
        return last
    key = f"queue:{name}"
    known = find_open_by_key(ledger.tx, key)
    if known is not None:
        return known
    release_key(ledger.tx, key)
    spec = MissionSpec.model_validate(
        {"name": name, "goal": "Run the jobs that are put here.", "planner": {"type": "none"}}
    )
    mission_id = _insert(ledger, spec, None, key=key)
    mission = ledger.mission(mission_id)
    if mission.events == 0:
        ledger.note(mission, "launched", None, {"name": name})
    return mission_id


def enqueue_alone(
    ledger: Ledger, worker: Worker[BaseModel], params: Mapping[str, JsonValue], *, mission_id: int | None,
    queue: tuple[str, int | None], name: str | None, priority: int, delay: float,
) -> tuple[int, int]:  # fmt: skip
    """Store a job that is due in `delay` seconds; the ids of its mission and of the job.

    Without `mission_id` the mission is that of `queue`: its name, and the id that it had last.
    """
    mission = mission_id or open_queue(ledger, *queue)
    run_after = None if delay <= 0 else ledger.tx.now + int(delay * SECOND)
    return mission, enqueue(
        ledger, worker, mission, params, name=name, priority=priority, run_after=run_after
    )


def _takes_jobs(ledger: Ledger, mission_id: int) -> bool:
    try:
        return not ledger.mission(mission_id).has_ended
    except LcpError:  # pruned
        return False


def enqueue(
    ledger: Ledger, worker: Worker[BaseModel], mission_id: int, params: Mapping[str, JsonValue], *,
    name: str | None, priority: int, run_after: int | None,
) -> int:  # fmt: skip
    """Add a job to a mission without planner and policy, since the caller is the operator; its id.

    Raises `INVALID_ARGUMENT` for a kind that asks the planner, `WRONG_STATE` for a cancelled mission.
    """
    if worker.executed_by is ExecutedBy.PLANNER:
        message = (
            f"jobs of kind {worker.kind} are requested by planners and launches; they cannot be enqueued"
        )
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    mission = ledger.mission(mission_id)
    if mission.status == MissionStatus.CANCELLED:
        raise LcpError(
            ErrorCode.WRONG_STATE, f"mission {mission_id} is cancelled; it takes no more jobs", advice=GENERAL
        )
    job_id = ledger.create(
        mission,
        NewJobRow(
            plan_id=mission.root_plan,
            name=name,
            kind=worker.kind,
            params=to_json(dict(params)),
            state=State.HELD if worker.executed_by is ExecutedBy.PERSON else State.QUEUED,
            reason=because(ReasonCode.QUESTION) if worker.executed_by is ExecutedBy.PERSON else None,
            priority=priority,
            run_after=run_after,
            max_attempts=worker.under(spec_of(mission.spec).kinds.get(worker.kind)).max_attempts,
        ),
    )
    refresh(ledger, mission)
    return job_id


def cancel(ledger: Ledger, mission_id: int, *, by: str) -> bool:
    """Stop a mission and its unsettled jobs. False if it was cancelled before and has no such job.

    Raises `WRONG_STATE` for a mission that has ended otherwise and has no such job.
    """
    mission = ledger.mission(mission_id)
    if mission.has_ended and mission.open == 0 and mission.held == 0:
        if mission.status == MissionStatus.CANCELLED:
            return False
        message = (
            f"mission {mission_id} is {mission.status}; only running and waiting missions can be cancelled"
        )
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    cancel_mission(ledger, mission, by)
    return True


def accept_root(ledger: Ledger, new: KnownRoot, limits: Mapping[str, JsonValue], *, by: str) -> None:
    """Let a mission work in another root; its old path stays a name of it.

    A mission that failed continues, and with other `limits` any that has ended. Raises `WRONG_STATE` for one without a
    root, or that has not ended although limits are given.
    """
    mission = ledger.mission(new.mission_id)
    if mission.root is None:
        raise LcpError(
            ErrorCode.WRONG_STATE, f"mission {mission.id} has no root; no other can be given", advice=GENERAL
        )
    old = mission.root
    move_root(ledger.tx, old, new)
    mission.root = new.path
    if old != new.path:
        spec = spec_of(mission.spec)
        aliases = tuple(dict.fromkeys((*spec.root_aliases, old)))
        mission.spec = spec.model_copy(update={"root_aliases": aliases}).model_dump_json(by_alias=True)
    ledger.note(mission, "root_accepted", None, {"by": by, "root": new.path, "before": old})
    if limits or mission.status == MissionStatus.FAILED:
        resume(ledger, mission.id, limits, by=by)


def resume(ledger: Ledger, mission_id: int, limits: Mapping[str, JsonValue], *, by: str) -> None:
    """Continue a mission that has ended, with other limits if given. Raises `WRONG_STATE` unless it has ended."""
    mission = ledger.mission(mission_id)
    if not mission.has_ended:
        message = f"mission {mission_id} is {mission.status}; only missions that have ended can be resumed"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    if mission.root_plan is None:
        raise LcpError(
            ErrorCode.WRONG_STATE,
            f"mission {mission_id} has no planner; it cannot be resumed",
            advice=GENERAL,
        )
    plan = ledger.plan(mission.root_plan)
    if plan.has_steps and steps().is_done(plan) and mission.status != MissionStatus.CANCELLED:
        message = f"mission {mission_id} has completed its plan; nothing of it is left to continue"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    before = spec_of(mission.spec).limits.model_dump(include=set(limits))
    if limits:
        mission.spec = _with_limits(mission.spec, limits)
    if was_declined(ledger, mission):
        spec = spec_of(mission.spec).model_copy(update={"on_limit": "hold"})
        mission.spec = spec.model_dump_json(by_alias=True)
    ended_on = mission.outcome
    mission.status, mission.outcome = "running", None
    plan.reopen()
    reopen_mission(ledger.tx, mission_id)
    # A turn may still be running, and only one is asked at a time.
    turns = (job.id for job in live_jobs(ledger, mission) if job.role is not Role.WORK and job.state in OPEN)
    mission.asking = next(turns, None)
    ledger.note(mission, "resumed", None, {"by": by, "limits": dict(limits), "before": before})
    if plan.has_steps:
        _take_up_steps(ledger, mission, plan)
        return
    _take_up_plans(ledger, mission, plan)
    if plan.open == 0:
        notice = f"a person resumed the mission; it had ended with {ended_on}"
        queue_question(ledger, plan, {"notices": [notice], RESUMED: True}, depth=plan.depth)
    refresh(ledger, mission)


def retry(ledger: Ledger, job_id: int, *, by: str, workers: Workers | None = None) -> None:
    """Queue a failed, skipped or cancelled job again; one that was never approved, or that a person rejected, is held.

    A step continues where it stopped, and the steps after it wait for it again. Raises `WRONG_STATE`, and with
    `workers` also `NO_WORKER` and `INVALID_PARAMS`.
    """
    job = locked_job(ledger, job_id)
    mission = ledger.mission(job.mission_id)
    if job.role is Role.TURN:
        message = f"job {job_id} is a turn; `lcp resume {job.mission_id}` asks the planner again"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    if job.state is State.REJECTED and job.role is Role.WORK and was_rejected_by_person(ledger.tx, job):
        _hold_rejected(ledger, job, by=by)
        return
    if job.state not in RETRY.sources:
        *others, last = sorted(RETRY.sources)
        expected = f"{', '.join(others)} and {last}"
        message = f"job {job_id} is {job.state}; only {expected} jobs, and those that a person rejected, can be retried"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    if workers is not None and job.terms is None:
        worker_of(workers, job).read(from_json(job.params), f"job {job.id}")
    job.failures = job.deaths = 0
    if job.role is Role.STEP:
        _retry_step(ledger, job, by=by)
        return
    if job.terms is not None:
        _check_step_may_run(ledger, job)
    hold = None if job.state is State.FAILED else unanswered_hold(ledger.tx, job)
    if hold is None:
        ledger.move(job, RETRY)
    else:
        ledger.move(job, RETRY_HELD, reason=hold)
    _follow_again(ledger, job)
    ledger.note(mission, "decided", job.id, {"by": by, "decision": "retry"})
    refresh(ledger, mission)


def _hold_rejected(ledger: Ledger, job: JobRow, *, by: str) -> None:
    """Hold a job again that a person has rejected: they may have changed their mind."""
    mission = ledger.mission(job.mission_id)
    if job.terms is not None:
        _check_step_may_run(ledger, job)
        _follow_again(ledger, job)
    ledger.move(job, RETRY_HELD, reason=unanswered_hold(ledger.tx, job) or because(ReasonCode.HELD_BEFORE))
    ledger.note(mission, "decided", job.id, {"by": by, "decision": "retry"})
    refresh(ledger, mission)


def _retry_step(ledger: Ledger, step: JobRow, *, by: str) -> None:
    """Ask the step's plan again, or for the first time. Raises `WRONG_STATE` if its plan has ended."""
    mission = ledger.mission(step.mission_id)
    _check_step_may_run(ledger, step)
    ended_as = step.state
    plan = begun_plan(ledger, step)
    if plan is None:
        _wait_again(ledger, step, ReasonCode.TURN_ORDER)
    else:
        ledger.move(step, RETRY_BLOCKED)
        plan.reopen()
        _go_on(ledger, mission, plan, f"a person retried this step; before, it was {ended_as}")
    _follow_again(ledger, step)
    ledger.note(mission, "decided", step.id, {"by": by, "decision": "retry"})
    refresh(ledger, mission)


def _check_step_may_run(ledger: Ledger, step: JobRow) -> None:
    """Raise `WRONG_STATE` for a step of a plan that has ended, or that waits for another one."""
    assert step.plan_id is not None
    plan, mission = ledger.plan(step.plan_id), ledger.mission(step.mission_id)
    if mission.has_ended or plan.outcome is not None:
        does = "continues it" if plan.has_steps else "asks the planner again"
        command = f"lcp resume {step.mission_id}"
        if plan.has_steps and plan.job_id is not None and not mission.has_ended:
            command = f"lcp retry {plan.job_id}"
        message = f"job {step.id} is a step of a plan that has ended: `{command}` {does}"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    for needed in unmet(ledger.tx, step.id):
        fact = f"job {step.id} follows job {needed.job_id}, which is {needed.state}"
        raise LcpError(ErrorCode.WRONG_STATE, f"{fact}; it can be retried once that succeeds", advice=GENERAL)


def _follow_again(ledger: Ledger, step: JobRow) -> None:
    """Let the steps that were skipped behind this one wait for it again."""
    plan = None if step.plan_id is None else ledger.plan(step.plan_id)
    if plan is not None:
        steps().forget_fault(plan, step)
    again = [step]
    for before in again:
        for behind, _ in followers_of(ledger.tx, before):
            if behind.state is State.SKIPPED:
                _wait_again(ledger, behind, ReasonCode.STEP_ORDER)
                again.append(behind)


def _take_up_steps(ledger: Ledger, mission: MissionRow, plan: PlanRow) -> None:
    """Let the steps of a stated plan go on that did not come to a good end, and end the plan if none can."""
    steps().take_up(ledger, plan, partial(_go_on, ledger, mission))
    continue_stated(ledger, mission, plan)


def _go_on(ledger: Ledger, mission: MissionRow, plan: PlanRow, notice: str) -> None:
    """Let a plan that was reopened go on where it stopped: with its steps, or with the next turn of its planner."""
    if plan.has_steps:
        _take_up_steps(ledger, mission, plan)
    elif not _take_up_plans(ledger, mission, plan):
        queue_turn(ledger, plan, notices=[notice])


def _take_up_plans(ledger: Ledger, mission: MissionRow, plan: PlanRow) -> bool:
    """Let the plans go on that a planner's plan was answered with and that were stopped. Whether there is one."""
    stopped = [
        begun
        for begun in steps().answered(ledger, plan)
        if begun.job_id is not None and ledger.job(begun.job_id).state in (State.CANCELLED, State.SKIPPED)
    ]
    for begun in stopped:
        assert begun.job_id is not None
        ledger.move(ledger.job(begun.job_id), RETRY_BLOCKED)
        begun.reopen()
        _take_up_steps(ledger, mission, begun)
    return bool(stopped)


def _wait_again(ledger: Ledger, step: JobRow, reason: str) -> None:
    """Block a step that has not begun, or hold it if it was never approved."""
    hold = None if step.state is State.FAILED else unanswered_hold(ledger.tx, step)
    if hold is None:
        ledger.move(step, RETRY_BLOCKED, reason=reason)
    else:
        ledger.move(step, RETRY_HELD, reason=hold)


def _insert(
    ledger: Ledger,
    spec: MissionSpec,
    root: Path | None,
    *,
    key: str | None,
    identity: RootIdentity | None = None,
    request: LaunchRequest | None = None,
) -> int:
    new = NewMission(
        uid=f"req-{uuid4()}" if request is None else request.id,
        key=key,
        name=spec.name,
        goal=spec.goal,
        root=None if root is None else str(root),
        root_identity=None if identity is None else identity.text,
        planner=spec.planner.type,
        spec=spec.model_dump_json(by_alias=True, exclude={*steps().keys}),
        session_id=None if request is None else request.session_id,
        user_id=None if request is None else request.user_id,
    )
    return insert_mission(ledger.tx, new)


def _with_limits(spec: str, limits: Mapping[str, JsonValue]) -> str:
    old = spec_of(spec)
    return old.model_copy(update={"limits": with_limits(old.limits, limits)}).model_dump_json(by_alias=True)
