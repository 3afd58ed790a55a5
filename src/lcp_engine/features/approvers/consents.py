"""Approvals that need more than one person, or anyone but who launched the mission (`approvals`, `not_requester`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, JsonValue

from lcp_engine.core.kinds import APPLY, MERGE
from lcp_engine.core.policy import Approvals, Consent, KindNames
from lcp_engine.core.settings.feature_settings import settings_in
from lcp_engine.engine.points import Decider, DecisionGate
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.approvers.settings import ApproverSettings
from lcp_engine.features.stages.store import kinds_in_stage
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import CONSENTED, Sight, consents_since_hold, requester_of, still_leads_to
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Worker, Workers

if TYPE_CHECKING:
    from lcp_engine.engine.admission import Admission

BY_LINK = "a signed link"
"""Who decided by a link that names no person."""


def _check(ledger: Ledger, job: JobRow, consent: Consent, decider: Decider) -> None:
    """Raise `NOT_ALLOWED` for a person who may not approve the job, `WRONG_STATE` for other params.

    What several people approve stays as each was shown it. The name of an approver counts if they are known to be that
    person, not as the name of a user.
    """
    if consent.is_usual:
        return
    by, settings, is_known, is_revised = decider
    approvers = settings_in(settings, ApproverSettings).approvers
    if by == BY_LINK:
        message = f"job {job.id} needs the approval of people who are known by name, and this link names none"
        advice = "Give each person a token: `lcp approvers add NAME`."
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=advice)
    if approvers and not (is_known and by in approvers):
        people = ", ".join(sorted(approvers))
        who = f"{by}, whose token was not shown" if by in approvers else by
        message = f"job {job.id} is approved by people of the configuration ({people}), not by {who}"
        advice = f"Decide as one of them: `lcp approve {job.id} --as NAME`, or a signed link."
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=advice)
    if consent.not_requester and by in requester_of(ledger.tx, job.mission_id):
        message = f"job {job.id} may not be approved by {by}, who launched mission {job.mission_id}"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice="Another person has to approve it.")
    if is_revised and consent.approvals > 1:
        message = f"job {job.id} needs {consent.approvals} approvals, so that its params cannot be edited"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice="Reject it, with what should be different.")


def _names(tx: Tx, mission_id: int, worker: Worker[BaseModel], workers: Workers) -> KindNames:
    """The names of a kind; of a merge or `apply`, those of the kinds that changed the stage, and of all that write.

    A kind that changed the stage may not be known here, and may be judged as any of those that write.
    """
    if worker.kind not in (MERGE, APPLY):
        return worker.named
    kinds = [*kinds_in_stage(tx, mission_id).values()]
    known = [one for kind, one in workers.items() if one.writes or kind in kinds]
    return KindNames((*worker.named.names, *kinds, *(name for one in known for name in one.named.names)))


def _gather(ledger: Ledger, job: JobRow, consent: Consent, by: str, sight: Sight) -> int | None:
    """Number of people who still have to approve the job after this one, whose consent is noted; None if it was before.

    Counted are those whose job it still is: with the same params, and the same file.
    """
    if consent.approvals == 1:
        return 0
    ledger.write_events()
    people = _still_for(ledger.tx, job.mission_id, job.id, sight)
    if by in people:
        return None
    missing = consent.approvals - len(people) - 1
    if missing > 0:
        data: dict[str, JsonValue] = {
            "by": by, "needed": consent.approvals, "have": len(people) + 1, "mission": job.mission_id,
            "fingerprint": sight.fingerprint, "path": sight.path, "found": sight.found, "seen_at": sight.at,
        }  # fmt: skip
        if sight.unseen is not None:
            data["unseen"] = sight.unseen.json
        ledger.note(ledger.mission(job.mission_id), CONSENTED, job.id, data)
    return missing


def approvals_of(
    tx: Tx, admission: Admission, held: tuple[int, int], consent: Consent, sight: Sight
) -> Approvals:
    """Whose approvals a held job has and needs; `sight` is what it would change now."""
    mission_id, job_id = held
    given = _still_for(tx, mission_id, job_id, sight)
    barred = requester_of(tx, mission_id) if consent.not_requester else frozenset[str]()
    people = settings_in(admission.settings, ApproverSettings).approvers.keys()
    left = tuple(sorted(people - given - barred)) if people else None
    return Approvals(consent.approvals, tuple(sorted(given)), tuple(sorted(barred)), left)


GATE = DecisionGate(names=_names, check=_check, gather=_gather, approvals=approvals_of)


def _still_for(tx: Tx, mission_id: int, job_id: int, now: Sight) -> set[str]:
    """The people whose approval is for what the job would change now."""
    return {
        person
        for person, seen in consents_since_hold(tx, mission_id, job_id)
        if (seen.fingerprint, seen.path) == (now.fingerprint, now.path)
        and still_leads_to(tx, mission_id, seen, now.found)
    }
