"""Decisions by signed links: each decides its one job once, as it was when the link was made."""

from __future__ import annotations

from dataclasses import dataclass

from lcp_engine.clock import SECOND, Micros, iso
from lcp_engine.core.job_states import State
from lcp_engine.engine.admission import Admission
from lcp_engine.engine.people.approvals import (
    approve,
    consent_to,
    decided_before,
    locked_job,
    reject,
    worker_of,
)
from lcp_engine.errors import GENERAL, Code, ErrorCode, ErrorType, LcpError, Meaning, Refused
from lcp_engine.features.approvers import store as used_links
from lcp_engine.features.approvers.consents import BY_LINK, approvals_of
from lcp_engine.features.approvers.link import PATH, DecisionLink
from lcp_engine.features.approvers.rules import Approvers, person_with
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import Sight, still_leads_to
from lcp_engine.store.queries.history import find_mission
from lcp_engine.store.queue import find_jobs
from lcp_engine.workers.base import ExecutedBy, Workers

LINK_REFUSED = Code(Meaning(
    "LINK_REFUSED", Refused, ErrorType.PERMISSION,
    "A signed link was edited, forwarded, used before, or has expired.",
    "Ask for a new link, or decide on the page or at the terminal.", status=403,
))  # fmt: skip
WAIT_FOR_WORDS = (ExecutedBy.PERSON, ExecutedBy.PLANNER)
"""Jobs that are executed so are answered, if they wait for a person."""


def link_to(url: str, key: bytes, sight: Sight, *, until: Micros, person: str | None, mission: str) -> str:
    """The URL that decides a job, which has the sight, once and until then; `mission` is the uid of its mission."""
    assert sight.job_id is not None
    link = DecisionLink(
        sight.job_id, sight.fingerprint, sight.found, sight.at, until // SECOND, person, mission
    )
    return f"{url.rstrip('/')}{PATH}{link.signed(key)}"


@dataclass(frozen=True)
class OpenLink:
    """A link with the name that it is remembered by once it was used."""

    link: DecisionLink
    name: str
    by: str
    """Person who decides by it."""


def check_linkable(tx: Tx, workers: Workers, job_id: int) -> None:
    """Raise `WRONG_STATE` for a job that is not held, or that waits for words; `NO_WORKER`."""
    for job in find_jobs(tx, [job_id]):
        if job.state is not State.HELD:
            raise decided_before(tx, job, "decided by a link")
        if worker_of(workers, job).executed_by in WAIT_FOR_WORDS:
            message = f"job {job_id} is a {job.kind}, which waits for words; a link approves or rejects"
            raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)


def person_of(link: DecisionLink, approvers: Approvers, token: str | None) -> str:
    """Person who decides by the link: with approvers, the one whose token was given; None gives none, to look only.

    Raises `LINK_REFUSED` without a token, for one that is nobody's, and for a link that another person was sent.
    """
    if link.person is not None and link.person not in approvers:
        raise refused(f"it was made for {link.person}, who decides nothing any more", "forwarded")
    if not approvers or token is None:
        return link.person or BY_LINK
    person = person_with(approvers, token)
    if person is None:
        raise refused("the token that was given is not an approver's", "no_approver")
    if link.person not in (None, person):
        raise refused(f"it was made for {link.person}, and this is the token of {person}", "forwarded")
    return person


def check_open(tx: Tx, opened: OpenLink) -> None:
    """Raise `LINK_REFUSED` for a link that has expired or was used, or was made for a job of another database."""
    link = opened.link
    for job in find_jobs(tx, [link.job_id]):
        if find_mission(tx, job.mission_id)["uid"] != link.mission:
            raise refused("it was made for a job of another database", "elsewhere")
    used = used_links.find_use(tx, opened.name)
    if used is not None:
        did = "approved" if used.decision == "approve" else "rejected"
        fact = f"it was used at {iso(used.at)}: {used.person} {did} job {link.job_id}"
        raise refused(fact, "used")
    if tx.now >= link.expires_at * SECOND:
        raise refused(f"it has expired at {iso(link.expires_at * SECOND)}", "expired")


def check_held(tx: Tx, job_id: int) -> None:
    """Raise `CONFLICT`, which says who decided, or `WRONG_STATE` for a job that is not held; `NOT_FOUND`."""
    for job in find_jobs(tx, [job_id]):
        if job.state is not State.HELD:
            raise decided_before(tx, job, "decided")


def check_unchanged(tx: Tx, link: DecisionLink, now: Sight) -> None:
    """Raise `CONFLICT` if the job, or the file that it would change, is not what it was when the link was made."""
    if now.fingerprint != link.fingerprint:
        raise _changed(link, "its params have been changed")
    (job,) = find_jobs(tx, [link.job_id])
    made = Sight(link.fingerprint, now.path, link.found, link.at)
    if not still_leads_to(tx, job.mission_id, made, now.found):
        raise _changed(link, f"{now.path!r} has been changed")


def approve_by_link(
    ledger: Ledger, admission: Admission, opened: OpenLink, *, now: Sight, shown: Sight
) -> None:
    """Approve the job as its page has `shown` it. Raises like `check_open`, `check_unchanged` and `approve`."""
    link = opened.link
    job = locked_job(ledger, link.job_id)
    check_open(ledger.tx, opened)
    if job.state is State.HELD:
        check_unchanged(ledger.tx, link, now)
    if not approve(ledger, admission, link.job_id, by=opened.by, now=now, shown=shown):
        if job.state is State.HELD:
            worker = worker_of(admission.workers, job)
            read = worker.read(from_json(job.params), f"job {job.id}")
            consent = consent_to(ledger, admission, worker, job, read)
            missing = approvals_of(ledger.tx, admission, (job.mission_id, job.id), consent, now).awaited
            message = f"{opened.by} has approved job {job.id} already; it waits for {missing}"
            raise LcpError(ErrorCode.CONFLICT, message, advice="Nothing is left to decide for this person.")
        ledger.write_events()  # of another person who shares this transaction
        raise decided_before(ledger.tx, job, "approved")
    used_links.keep_use(ledger.tx, opened.name, link.job_id, "approve", opened.by)


def reject_by_link(ledger: Ledger, opened: OpenLink, reason: str, *, now: Sight) -> None:
    """Reject the job as it was when the link was made. Raises like `check_open`, `check_unchanged` and `reject`."""
    job = locked_job(ledger, opened.link.job_id)
    check_open(ledger.tx, opened)
    if job.state is State.HELD:
        check_unchanged(ledger.tx, opened.link, now)
    if not reject(ledger, opened.link.job_id, reason, by=opened.by):
        ledger.write_events()
        raise decided_before(ledger.tx, job, "rejected")
    used_links.keep_use(ledger.tx, opened.name, opened.link.job_id, "reject", opened.by)


def refused(fact: str, why: str) -> LcpError:
    """The error for a link that decides nothing; `why` is a word for programs."""
    return LcpError(LINK_REFUSED, f"this link decides nothing: {fact}", {"why": why})


def _changed(link: DecisionLink, fact: str) -> LcpError:
    message = f"job {link.job_id} is not what it was when this link was made: {fact} since"
    return LcpError(ErrorCode.CONFLICT, message, advice="Ask for a new link, or decide on the page.")
