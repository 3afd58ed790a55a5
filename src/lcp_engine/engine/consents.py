"""Approvals that need more than one person, or anyone but who launched the mission (`approvals`, `not_requester`)."""

from __future__ import annotations

from os.path import normpath

from pydantic import JsonValue

from lcp_engine.core.policy import Consent
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import CONSENTED, Sight, consents_since_hold, is_led_to, requester_of
from lcp_engine.store.row_types import JobRow


def check_person(
    ledger: Ledger, job: JobRow, consent: Consent, by: str, approvers: frozenset[str], *, is_revised: bool
) -> None:
    """Raise `NOT_ALLOWED` for a person who may not approve the job, `WRONG_STATE` for other params.

    What several people approve stays as each was shown it.
    """
    if consent.is_usual:
        return
    if approvers and by not in approvers:
        people = ", ".join(sorted(approvers))
        message = f"job {job.id} is approved by people of the configuration ({people}), not by {by}"
        advice = f"Decide as one of them: `lcp approve {job.id} --as NAME`, or a signed link."
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=advice)
    if consent.not_requester and by in requester_of(ledger.tx, job.mission_id):
        message = f"job {job.id} may not be approved by {by}, who launched mission {job.mission_id}"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice="Another person has to approve it.")
    if is_revised and consent.approvals > 1:
        message = f"job {job.id} needs {consent.approvals} approvals, so that its params cannot be edited"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice="Reject it, with what should be different.")


def gather(ledger: Ledger, job: JobRow, consent: Consent, by: str, sight: Sight) -> int | None:
    """How many more people have to approve the job after this one, whose consent is noted; None if it was before.

    Counted are those whose job it still is: with the same params, and the same file.
    """
    if consent.approvals == 1:
        return 0
    people = {person for person, seen in _consents(ledger, job) if _is_same(ledger, job, seen, sight)}
    if by in people:
        return None
    missing = consent.approvals - len(people) - 1
    if missing > 0:
        data: dict[str, JsonValue] = {
            "by": by, "needed": consent.approvals, "have": len(people) + 1, "mission": job.mission_id,
            "fingerprint": sight.fingerprint, "path": sight.path, "found": sight.found, "seen_at": sight.at,
        }  # fmt: skip
        ledger.note(ledger.mission(job.mission_id), CONSENTED, job.id, data)
    return missing


def _consents(ledger: Ledger, job: JobRow) -> list[tuple[str, Sight]]:
    ledger.write_events()
    return consents_since_hold(ledger.tx, job)


def _is_same(ledger: Ledger, job: JobRow, seen: Sight, now: Sight) -> bool:
    if seen.fingerprint != now.fingerprint or seen.path != now.path:
        return False
    file = normpath(f"{ledger.mission(job.mission_id).root}/{seen.path}")
    return seen.path is None or is_led_to(ledger.tx, job.mission_id, file, seen, now.found)
