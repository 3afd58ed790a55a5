"""Order turns and steps: one turn of a mission is asked at a time, a step follows its predecessor (R7, R12)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from lcp_engine.core.decide import Claim, Outcome
from lcp_engine.core.job_states import SETTLED, SKIP, UNBLOCK, Role, State, fulfils
from lcp_engine.core.kinds import TURN, TURN_PRIORITY
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.engine.points import steps
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.edges import followers_of, next_turn
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.missions import find_plan_of
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow

TURN_ATTEMPTS = 3

VERIFIES = "verifies"
"""The param of a turn that verifies a claim of the planner (R9)."""
CLAIMED_IN = "question"
"""The key of a claim's record that names the question whose reply made it."""
RESUMED = "resumed"
"""The param of the turn that a person began by resuming the mission."""
_QUESTION = ("user_prompt", "context", "notices", VERIFIES, RESUMED)
_FAULTS = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.REJECTED: "was rejected",
    State.SKIPPED: "was skipped",
    State.CANCELLED: "was cancelled",
}


def acting_plan(ledger: Ledger, job: JobRow) -> PlanRow:
    """The plan whose turn a job is: its own, or the one that it begins as a step."""
    if job.role is not Role.STEP:
        assert job.plan_id is not None
        return ledger.plan(job.plan_id)
    return begun_plan(ledger, job) or ledger.new_plan(
        job.mission_id, job_id=job.id, parent_id=job.plan_id, depth=job.depth
    )


def begun_plan(ledger: Ledger, step: JobRow) -> PlanRow | None:
    """The plan that a step has begun; None if its turn was never asked."""
    plan_id = find_plan_of(ledger.tx, step.mission_id, step.id)
    return None if plan_id is None else ledger.plan(plan_id)


def record_of(claim: Claim, claimed_in: int) -> dict[str, JsonValue]:
    """A claim as it is stored with what is asked about it."""
    return {"outcome": claim.outcome, "message": claim.message, CLAIMED_IN: claimed_in}


def claim_in(record: JsonValue) -> tuple[Claim, int | None] | None:
    """The claim that is stored, with the question whose reply made it; None if none is."""
    if not isinstance(record, dict) or "outcome" not in record:
        return None
    message, number = record.get("message"), record.get(CLAIMED_IN)
    claim = Claim(Outcome(str(record["outcome"])), message if isinstance(message, str) else None)
    return claim, number if isinstance(number, int) else None


def queue_turn(ledger: Ledger, plan: PlanRow, *, notices: Sequence[str] = ()) -> int:
    """Queue the plan's next turn, after any open turn of the mission; the id of its job."""
    return queue_question(ledger, plan, {"notices": list(notices)} if notices else {}, depth=plan.depth)


def queue_correction(ledger: Ledger, plan: PlanRow, asked: JobRow, number: int) -> int:
    """Queue question `number` of the turn `asked` again, with what was wrong (R4); the id of its job."""
    same = {name: value for name, value in from_json(asked.params).items() if name in _QUESTION}
    return queue_question(ledger, plan, {**same, "corrects": number}, depth=asked.depth)


def queue_question(ledger: Ledger, plan: PlanRow, params: dict[str, JsonValue], *, depth: int) -> int:
    """Like `queue_turn`, with these params."""
    mission = ledger.mission(plan.mission_id)
    is_free = mission.asking is None
    job_id = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            kind=TURN,
            params=to_json(params),
            role=Role.TURN,
            state=State.QUEUED if is_free else State.BLOCKED,
            reason=None if is_free else ReasonCode.TURN_ORDER,
            priority=TURN_PRIORITY,
            depth=depth,
            max_attempts=turn_attempts(spec_of(mission.spec)),
        ),
    )
    if is_free:
        mission.asking = job_id
    return job_id


def turn_attempts(spec: MissionSpec) -> int:
    """Number of times that the planner of a mission may fail to answer a question."""
    stated = spec.kinds.get(TURN)
    attempts = None if stated is None else stated.retry.max_attempts
    return TURN_ATTEMPTS if attempts is None else attempts


def is_asking(ledger: Ledger, plan: PlanRow) -> bool:
    """True if a turn of the plan is held until a person replies."""
    asking = ledger.mission(plan.mission_id).asking
    if asking is None:
        return False
    turn = ledger.job(asking)
    return turn.plan_id == plan.id and turn.state is State.HELD


def unblock_turn(ledger: Ledger, mission: MissionRow) -> None:
    """Unblock the blocked turn or step with the lowest id, if no turn is open."""
    if mission.asking is not None or mission.blocked == 0:
        return
    job = next_turn(ledger.tx, mission.id)
    if job is not None:
        ledger.move(job, UNBLOCK)
        mission.asking = job.id


def is_early(job: JobRow) -> bool:
    """True if a step before this one has not ended yet as it needs."""
    return bool(job.waits_for)


def has_follower(ledger: Ledger, step: JobRow) -> bool:
    """True if another step waits for this one."""
    return any(follower.state not in SETTLED for follower, _ in followers_of(ledger.tx, step))


def release_followers(ledger: Ledger, settled: JobRow) -> None:
    """Let the steps behind a settled one begin that wait for nothing else; skip those that cannot follow it any more.

    Steps that ask the planner also wait for their turn (`unblock_turn`). The reason of a skip names the step before.
    """
    ended = [settled]
    for before in ended:
        for follower, needs in followers_of(ledger.tx, before):
            if follower.state not in SKIP.sources:
                continue
            if needs not in fulfils(before.state):
                fault = _FAULTS[before.state]
                ledger.move(follower, SKIP, reason=because(ReasonCode.STEP_ENDED, job=before.id, fault=fault))
                ended.append(follower)
            elif (
                follower.terms is not None and not follower.waits_for and not steps().begin(ledger, follower)
            ):
                ended.append(follower)
