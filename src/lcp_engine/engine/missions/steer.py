"""Let people steer: launch, approve, reject, cancel, resume, retry (one transaction each)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel, JsonValue
from sqlalchemy import bindparam, null, select, text, update

from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import OPEN, RETRY, RETRY_HELD, Role, State
from lcp_engine.core.mission.parse import with_limits
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.engine.people.approve import locked_job, worker_of
from lcp_engine.engine.plans.progress import cancel_mission, refresh
from lcp_engine.engine.plans.retry_step import retry_step
from lcp_engine.engine.plans.turn_queue import TURN_KIND, queue_turn
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.people import unanswered_hold
from lcp_engine.store.queue import live_jobs
from lcp_engine.store.schema import missions
from lcp_engine.workers.base import ExecutedBy, Worker, Workers

_NEW_MISSION_COLUMNS = ("uid", "key", "name", "goal", "root", "planner", "spec", "status", "created_at")
# Two launches with one key at the same moment: the database lets one of them in.
_NEW_MISSION = Statement(
    text(
        f"INSERT INTO missions ({', '.join(_NEW_MISSION_COLUMNS)}) "  # noqa: S608  # names of our own
        f"VALUES ({', '.join(f':{name}' for name in _NEW_MISSION_COLUMNS)}) ON CONFLICT (key) DO NOTHING RETURNING id"
    )
)
_BY_KEY = Statement(select(missions.c.id).where(missions.c.key == bindparam("wanted")))
_QUEUE = Statement(
    select(missions.c.id).where(missions.c.key == bindparam("wanted"), text("ended_at IS NULL"))
)
_GIVE_UP_KEY = Statement(
    update(missions)
    .where(missions.c.key == bindparam("wanted"), text("ended_at IS NOT NULL"))
    .values(key=null())
)
_REOPEN = Statement(
    update(missions)
    .where(missions.c.id == bindparam("mission"))
    .values(ended_at=null(), error=null(), summary=null())
)


def launch(
    ledger: Ledger,
    spec: MissionSpec,
    root: Path,
    *,
    key: str | None = None,
    about: Mapping[str, JsonValue] | None = None,
) -> int:
    """Store a mission with its first turn; its id. With a `key` that was used before, the mission of then.

    `about` tells more in the event that begins its history.
    """
    tx = ledger.tx
    if key is not None and (known := tx.row(_BY_KEY, wanted=key)) is not None:
        return int(known[0])
    mission_id = _insert(tx, spec, root, key)
    mission = ledger.mission(mission_id)
    if mission.root_plan is not None:
        return mission_id
    ledger.note(mission, "launched", None, {"name": spec.name, **(about or {})})
    plan = ledger.new_plan(mission_id, job_id=None, parent_id=None, depth=0)
    mission.root_plan = plan.id
    params: dict[str, JsonValue] = {"user_prompt": spec.goal}
    mission.asking = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            kind=TURN_KIND,
            params=to_json(params),
            role=Role.TURN,
            priority=10,
            max_attempts=3,
        ),
    )
    return mission_id


def open_queue(ledger: Ledger, name: str, last: int | None = None) -> int:
    """The mission that holds jobs without a planner; its id. `last` is the one that it was before.

    Made where there is none, or where that one was cancelled: it may be pruned by now.
    """
    if last is not None and _takes_jobs(ledger, last):
        return last
    key = f"queue:{name}"
    known = ledger.tx.row(_QUEUE, wanted=key)
    if known is not None:
        return int(known[0])
    ledger.tx.send(_GIVE_UP_KEY, wanted=key)
    spec = MissionSpec.model_validate(
        {"name": name, "goal": "Run the jobs that are put here.", "planner": {"type": "none"}}
    )
    mission_id = _insert(ledger.tx, spec, None, key)
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
    """Put a job into a mission, past planner and policy: whoever calls this is the operator. Its id.

    Raises `INVALID_ARGUMENT` for a kind that asks the planner, `WRONG_STATE` for a cancelled mission.
    """
    if worker.executed_by is ExecutedBy.PLANNER:
        message = (
            f"a job of kind {worker.kind} is asked for by a planner or by launching; it cannot be enqueued"
        )
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    mission = ledger.mission(mission_id)
    if mission.status == "cancelled":
        raise LcpError(
            ErrorCode.WRONG_STATE, f"mission {mission_id} takes jobs unless it is cancelled; it is"
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
            max_attempts=worker.max_attempts,
        ),
    )
    refresh(ledger, mission)
    return job_id


def cancel(ledger: Ledger, mission_id: int, *, by: str) -> bool:
    """Stop a mission and everything of it that is not settled. False where it is cancelled and nothing is left.

    Raises `WRONG_STATE` for one that has ended otherwise and of which nothing is left.
    """
    mission = ledger.mission(mission_id)
    if mission.has_ended and mission.open == 0 and mission.held == 0:
        if mission.status == "cancelled":
            return False
        message = f"mission {mission_id} has to be running or waiting to be cancelled; it is {mission.status}"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    cancel_mission(ledger, mission, by)
    return True


def resume(ledger: Ledger, mission_id: int, limits: Mapping[str, JsonValue], *, by: str) -> None:
    """Go on with a mission that has ended, with other limits if given. Raises `WRONG_STATE` while it goes on anyway."""
    mission = ledger.mission(mission_id)
    if not mission.has_ended:
        message = f"mission {mission_id} has to have ended to be resumed; it is {mission.status}"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    if mission.root_plan is None:
        raise LcpError(
            ErrorCode.WRONG_STATE, f"mission {mission_id} has no planner; there is nothing to resume"
        )
    before = spec_of(mission.spec).limits.model_dump(include=set(limits))
    if limits:
        mission.spec = _with_limits(mission.spec, limits)
    ended_on = mission.outcome
    mission.status, mission.outcome = "running", None
    plan = ledger.plan(mission.root_plan)
    plan.reopen()
    ledger.tx.run(_REOPEN, mission=mission_id)
    # A turn may be under way still, and two are never asked at a time.
    turns = (job.id for job in live_jobs(ledger, mission) if job.role is not Role.WORK and job.state in OPEN)
    mission.asking = next(turns, None)
    ledger.note(mission, "resumed", None, {"by": by, "limits": dict(limits), "before": before})
    if plan.open == 0:
        queue_turn(ledger, plan, notices=[f"a person resumed the mission; it had ended with {ended_on}"])
    refresh(ledger, mission)


def retry(ledger: Ledger, job_id: int, *, by: str, workers: Workers | None = None) -> None:
    """Queue a failed, skipped or cancelled job again; one that was held, and never approved after that, is held again.

    A step goes on where it stopped, and the steps behind it wait for it again.

    Raises `WRONG_STATE`, and with `workers` also `NO_WORKER` and `INVALID_PARAMS` like `approve`.
    """
    job = locked_job(ledger, job_id)
    mission = ledger.mission(job.mission_id)
    if job.role is Role.TURN:
        message = f"job {job_id} is a turn; `lcp resume {job.mission_id}` asks the planner again"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    if job.state not in RETRY.sources:
        *others, last = sorted(RETRY.sources)
        expected = f"{', '.join(others)} or {last}"
        raise LcpError(
            ErrorCode.WRONG_STATE, f"job {job_id} has to be {expected} to be retried; it is {job.state}"
        )
    if workers is not None:
        worker_of(workers, job).read(from_json(job.params), f"job {job.id}")
    job.failures = job.deaths = 0
    if job.role is Role.STEP:
        retry_step(ledger, job, by=by)
        return
    hold = None if job.state is State.FAILED else unanswered_hold(ledger.tx, job)
    if hold is None:
        ledger.move(job, RETRY)
    else:
        ledger.move(job, RETRY_HELD, reason=hold)
    ledger.note(mission, "decided", job.id, {"by": by, "decision": "retry"})
    refresh(ledger, mission)


def _insert(tx: Tx, spec: MissionSpec, root: Path | None, key: str | None) -> int:
    """The mission's id; of the one that has the key where another process was faster."""
    row = tx.row(
        _NEW_MISSION,
        uid=f"req-{uuid4()}",
        key=key,
        name=spec.name,
        goal=spec.goal,
        root=None if root is None else str(root),
        planner=spec.planner.type,
        spec=spec.model_dump_json(by_alias=True),
        status="running",
        created_at=tx.now,
    )
    if row is None:
        row = tx.row(_BY_KEY, wanted=key)
    assert row is not None
    return int(row[0])


def _with_limits(spec: str, limits: Mapping[str, JsonValue]) -> str:
    old = spec_of(spec)
    return old.model_copy(update={"limits": with_limits(old.limits, limits)}).model_dump_json(by_alias=True)
