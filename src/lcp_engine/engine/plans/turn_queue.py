"""Queue the turns of plans, of which one at a time is asked (R7)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue
from sqlalchemy import bindparam, select

from lcp_engine.core.job_states import UNBLOCK, Role, State
from lcp_engine.engine.plans.steps import is_due
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.db.transaction import Statement
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.queue import live_jobs
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.store.schema import plans

TURN_KIND = "agent_plan"
TURN_PRIORITY = 10
TURN_ATTEMPTS = 3
TURN_ORDER = "turn_order"
"""Why a turn is blocked: turns of a mission are asked one at a time, in the order of job ids (R7)."""

VERIFIES = "verifies"
"""The param of a turn that verifies what the planner said was done (R9)."""
_QUESTION = ("user_prompt", "context", "notices", VERIFIES)

_PLAN_OF_STEP = Statement(
    select(plans.c.id).where(plans.c.mission_id == bindparam("mission"), plans.c.job_id == bindparam("job"))
)


def acting_plan(ledger: Ledger, job: JobRow) -> PlanRow:
    """The plan that a turn speaks for: its own, or the one that it begins as a step."""
    if job.role is not Role.STEP:
        assert job.plan_id is not None
        return ledger.plan(job.plan_id)
    return begun_plan(ledger, job) or ledger.new_plan(
        job.mission_id, job_id=job.id, parent_id=job.plan_id, depth=job.depth
    )


def begun_plan(ledger: Ledger, step: JobRow) -> PlanRow | None:
    """The plan of a step's own; None where it was never asked."""
    row = ledger.tx.row(_PLAN_OF_STEP, mission=step.mission_id, job=step.id)
    return None if row is None else ledger.plan(int(row[0]))


def queue_turn(ledger: Ledger, plan: PlanRow, *, notices: Sequence[str] = ()) -> int:
    """Queue the plan's next turn, behind a turn of the mission that is still open; the id of its job."""
    return queue_question(ledger, plan, {"notices": list(notices)} if notices else {}, depth=plan.depth)


def queue_correction(ledger: Ledger, plan: PlanRow, asked: JobRow, number: int) -> int:
    """Queue the question `number` of the turn `asked` once more (R4); the id of its job."""
    same = {name: value for name, value in from_json(asked.params).items() if name in _QUESTION}
    return queue_question(ledger, plan, {**same, "corrects": number}, depth=asked.depth)


def queue_question(ledger: Ledger, plan: PlanRow, params: dict[str, JsonValue], *, depth: int) -> int:
    """Like `queue_turn`, with params of its own."""
    mission = ledger.mission(plan.mission_id)
    is_free = mission.asking is None
    job_id = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            kind=TURN_KIND,
            params=to_json(params),
            role=Role.TURN,
            state=State.QUEUED if is_free else State.BLOCKED,
            reason=None if is_free else TURN_ORDER,
            priority=TURN_PRIORITY,
            depth=depth,
            max_attempts=TURN_ATTEMPTS,
        ),
    )
    if is_free:
        mission.asking = job_id
    return job_id


def is_asking(ledger: Ledger, plan: PlanRow) -> bool:
    """Whether a turn that the plan has to wait for is held until a person replies."""
    asking = ledger.mission(plan.mission_id).asking
    if asking is None:
        return False
    turn = ledger.job(asking)
    return turn.plan_id == plan.id and turn.state is State.HELD


def unblock_turn(ledger: Ledger, mission: MissionRow) -> None:
    """Let the blocked turn with the lowest id be asked, once no other one is open."""
    if mission.asking is not None or mission.blocked == 0:
        return
    live = live_jobs(ledger, mission)
    ids = {job.id for job in live}
    for job in live:
        if (job.state is State.BLOCKED and job.reason == TURN_ORDER) or is_due(ledger, job, ids):
            ledger.move(job, UNBLOCK)
            mission.asking = job.id
            return
