"""Let a person speak to the planner: nothing is approved or rejected by it (R14)."""

from __future__ import annotations

from lcp_engine.engine.people.answer import spoken
from lcp_engine.engine.plans.progress import refresh
from lcp_engine.engine.plans.turn_queue import is_asking, queue_turn
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import SAID
from lcp_engine.store.queue import find_jobs
from lcp_engine.store.row_types import MissionRow, PlanRow


def say(ledger: Ledger, mission_id: int, text: str, *, by: str, job_id: int | None = None) -> None:
    """Keep the words for the planner's next turn, which is queued where none would come by itself.

    With `job_id` they are about that job, and go to the plan that asked for it. Raises `NOT_FOUND`, `WRONG_STATE`
    where no turn follows any more, `INVALID_ARGUMENT` for words that are blank or too many and for the job of another
    mission.
    """
    mission = ledger.mission(mission_id)
    said = spoken(text, f"what is said to mission {mission_id}")
    _check_goes_on(mission)
    plan = _plan(ledger, mission, job_id)
    ledger.note(mission, SAID, job_id, {"by": by, "text": said, "plan": plan.id})
    ledger.write_events()  # a turn that begins in the same transaction reads them
    if _needs_turn(ledger, mission, plan):
        queue_turn(ledger, plan)
    refresh(ledger, mission)


def _check_goes_on(mission: MissionRow) -> None:
    if mission.root_plan is None:
        message = f"mission {mission.id} has to have a planner to be spoken to; it has none"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    if mission.has_ended:
        message = (
            f"mission {mission.id} has to be running or waiting to be spoken to; it is {mission.status}: "
            f"`lcp resume {mission.id}` goes on with it"
        )
        raise LcpError(ErrorCode.WRONG_STATE, message)


def _plan(ledger: Ledger, mission: MissionRow, job_id: int | None) -> PlanRow:
    """The plan that asked for the job while it goes on, else the mission's own."""
    assert mission.root_plan is not None
    root = ledger.plan(mission.root_plan)
    if job_id is None:
        return root
    jobs = find_jobs(ledger.tx, [job_id])
    if not jobs:
        raise LcpError(ErrorCode.NOT_FOUND, f"job {job_id} is not in the database")
    if jobs[0].mission_id != mission.id:
        message = f"job {job_id} has to be of mission {mission.id}; it is of mission {jobs[0].mission_id}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    plan_id = jobs[0].plan_id
    plan = root if plan_id is None else ledger.plan(plan_id)
    return plan if plan.outcome is None else root


def _needs_turn(ledger: Ledger, mission: MissionRow, plan: PlanRow) -> bool:
    """Whether no turn of the plan would follow by itself, or none before a person decides something else."""
    if plan.open == 0:
        return not is_asking(ledger, plan)
    return mission.asking is None and mission.queued + mission.running == 0
