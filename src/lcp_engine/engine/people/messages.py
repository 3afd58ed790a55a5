"""Messages of people to planners (R14): take one, find those that a turn is asked with."""

from __future__ import annotations

from collections.abc import Sequence

from lcp_engine.engine.points import observers
from lcp_engine.engine.progress import refresh
from lcp_engine.engine.turn_queue import is_asking, queue_turn
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.planners.base import NO_PLANNER, Said, SeenJob
from lcp_engine.store.db.json_text import from_json, storable
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import SAID, heard_until, said_to
from lcp_engine.store.queue import find_jobs
from lcp_engine.store.row_types import MissionRow, PlanRow, TurnRow
from lcp_engine.store.turns import shown_job

MOST_CHARACTERS = 100_000
"""The longest message: a planner reads it in one prompt with everything else."""


def say(ledger: Ledger, mission_id: int, text: str, *, by: str, job_id: int | None = None) -> None:
    """Store a message for the planner's next turn, and queue that turn if nothing else would.

    With `job_id` it is about that job, and goes to the plan that asked for it. Raises `NOT_FOUND`; `WRONG_STATE` for a
    mission without further turns; `INVALID_ARGUMENT` for a blank or too long message and for a job of another mission.
    """
    mission = ledger.mission(mission_id)
    said = spoken(text, f"the message to mission {mission_id}")
    _check_is_open(mission)
    plan = _plan(ledger, mission, job_id)
    ledger.note(mission, SAID, job_id, {"by": by, "text": said, "plan": plan.id})
    for one in observers():
        one.said(ledger, mission, said, by)
    ledger.write_events()  # a turn that begins in the same transaction reads them
    if _needs_turn(ledger, mission, plan):
        queue_turn(ledger, plan)
    refresh(ledger, mission)


def _check_is_open(mission: MissionRow) -> None:
    if mission.root_plan is None or mission.planner == NO_PLANNER:
        message = f"mission {mission.id} has no planner; nobody would read the message"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    if mission.has_ended:
        message = (
            f"mission {mission.id} is {mission.status}; only running and waiting missions take messages: "
            f"`lcp resume {mission.id}` continues it"
        )
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)


def _plan(ledger: Ledger, mission: MissionRow, job_id: int | None) -> PlanRow:
    """The plan that asked for the job if it is open, else the mission's own."""
    assert mission.root_plan is not None
    root = ledger.plan(mission.root_plan)
    if job_id is None:
        return root
    jobs = find_jobs(ledger.tx, [job_id])
    if not jobs:
        raise LcpError(ErrorCode.NOT_FOUND, f"job {job_id} is not in the database")
    if jobs[0].mission_id != mission.id:
        message = f"job {job_id} belongs to mission {jobs[0].mission_id}, not to mission {mission.id}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    plan_id = jobs[0].plan_id
    plan = root if plan_id is None else ledger.plan(plan_id)
    return plan if plan.outcome is None else root


def _needs_turn(ledger: Ledger, mission: MissionRow, plan: PlanRow) -> bool:
    """True if no turn of the plan would follow, or none before a person decides something else."""
    if plan.open == 0:
        return not is_asking(ledger, plan)
    return mission.asking is None and mission.queued + mission.running == 0


def new_messages(tx: Tx, turn: TurnRow) -> Sequence[Said]:
    """Messages to a plan since its last turn; a corrective question repeats those of its turn."""
    after = heard_until(tx, turn.mission_id, turn.plan_id, turn.turn)
    return _messages(tx, turn, after, turn.until_seq)


def earlier_messages(tx: Tx, turn: TurnRow) -> Sequence[Said]:
    """Messages that earlier turns of the plan were asked with, oldest first."""
    return _messages(tx, turn, 0, heard_until(tx, turn.mission_id, turn.plan_id, turn.turn))


def _messages(tx: Tx, turn: TurnRow, after_seq: int, until_seq: int) -> Sequence[Said]:
    found = said_to(tx, turn.mission_id, turn.plan_id, after_seq, until_seq)
    rows = {job_id: shown_job(tx, job_id) for job_id, _ in found if job_id is not None}
    jobs = {job_id: seen_job(row) for job_id, row in rows.items() if row is not None}
    return [Said(str(said["text"]), str(said["by"]), jobs.get(job_id or 0)) for job_id, said in found]


def seen_job(row: Row) -> SeenJob:
    """A row of `settled_jobs`, `waiting_jobs` or `shown_job` as planners see it."""
    job_id, name, kind, params, state, reason, result, error, turn = row
    return SeenJob(
        job_id=job_id,
        name=name,
        kind=kind,
        params=from_json(params),
        state=state,
        reason=reason,
        result=None if result is None else from_json(result),
        error=None if error is None else from_json(error),
        turn=turn,
    )


def spoken(text: str, what: str) -> str:
    """A person's text as it is stored. Raises `INVALID_ARGUMENT` if it is blank or too long."""
    said = storable(text).strip()
    if not said:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{what} is blank; a text is expected")
    if len(said) > MOST_CHARACTERS:
        message = f"{what} has {len(said)} characters; at most {MOST_CHARACTERS} characters are allowed"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return said
