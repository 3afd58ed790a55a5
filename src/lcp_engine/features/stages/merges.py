"""Ask a person for the merge of a stage before its mission ends, and find how the mission ends then (R28)."""

from __future__ import annotations

from pydantic import JsonValue

from lcp_engine.core.decide import End, Outcome
from lcp_engine.core.follow import Ends
from lcp_engine.core.job_states import State
from lcp_engine.core.kinds import MERGE
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.engine.points import Asker, EndGate
from lcp_engine.engine.turn_queue import CLAIMED_IN
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.features.stages.mission_keys import StageKeys
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.missions import event_data
from lcp_engine.store.people import heard_until, said_to
from lcp_engine.store.queue import live_jobs
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow

ATTEMPTS = 3
_LAST = 2**31 - 1
"""No turn and no event of a mission has a higher number."""
CLAIMED = "merge_requested"
"""The event of a merge: how the mission ends once its stage is merged."""


def is_staged(mission: MissionRow) -> bool:
    """True if the mission works in a stage."""
    return mission.root is not None and StageKeys.of(spec_of(mission.spec)).stage


def request_merge(
    ledger: Ledger, mission: MissionRow, plan: PlanRow, end: End, claimed_in: int | None = None
) -> None:
    """Queue the job that finds out what there is to merge, and then waits for a person.

    Once it has succeeded, a mission that has not ended yet ends as `end` says. If there is one that waits already, only
    that changes.
    """
    waiting = (job.id for job in live_jobs(ledger, mission) if job.kind == MERGE)
    job_id = next(waiting, None)
    if job_id is None:
        job_id = ledger.create(
            mission,
            NewJobRow(
                plan_id=plan.id,
                turn=mission.turns or None,
                name="the stage",
                kind=MERGE,
                params="{}",
                max_attempts=ATTEMPTS,
            ),
        )
    unmet: list[JsonValue] = list(end.failed_checks)
    claim: dict[str, JsonValue] = {
        "outcome": end.outcome, "succeeded": end.succeeded, "message": end.message, "limit": end.limit, "unmet": unmet,
        "is_declined": end.is_declined, CLAIMED_IN: claimed_in,
    }  # fmt: skip
    ledger.note(mission, CLAIMED, job_id, claim)


def end_of_merge(ledger: Ledger, job: JobRow) -> Ends | None:
    """End of the mission now that its merge is settled; None if its planner goes on.

    That is so for a merge that was not done, and where a person said something about it that no turn has read.
    """
    data = event_data(ledger.tx, job.mission_id, job.id, CLAIMED)
    if job.state is State.SUCCEEDED and _is_unheard(ledger, job):
        return None
    if job.state is State.SUCCEEDED and data.get("succeeded") is True:
        message, limit, unmet, number = map(data.get, ("message", "limit", "unmet", CLAIMED_IN))
        end = End(
            str(data["outcome"]),
            succeeded=True,
            message=message if isinstance(message, str) else None,
            limit=limit if isinstance(limit, str) else None,
            failed_checks=tuple(map(str, unmet)) if isinstance(unmet, list) else (),
            is_declined=data.get("is_declined") is True,
        )
        return Ends(end, None, number if isinstance(number, int) else None, of_mission=True)
    has_planner = job.plan_id is None or ledger.plan(job.plan_id).on_failure is None
    if has_planner or data.get("succeeded") is not True:
        return None
    fact = f"was rejected: {job.reason}" if job.state is State.REJECTED else f"is {job.state}"
    message = f"the merge of its stage, job {job.id}, {fact}; the root is as it was"
    advice = "Change the plan as the person says, then launch it again."
    failed = Failed(ErrorCode.NOT_ALLOWED, message, {"outcome": Outcome.JOB_FAILED, "job": job.id}, advice)
    return Ends(End(Outcome.JOB_FAILED, succeeded=False, message=message), failed, of_mission=True)


def _is_unheard(ledger: Ledger, job: JobRow) -> bool:
    """True if the planner has not read yet what a person said about the merge."""
    if job.plan_id is None:
        return False
    heard = heard_until(ledger.tx, job.mission_id, job.plan_id, _LAST)
    said = said_to(ledger.tx, job.mission_id, job.plan_id, heard, _LAST)
    return any(about == job.id for about, _ in said)


ASKER = Asker(end_of_merge)
GATE = EndGate(is_staged, request_merge)
