"""Signed links, each of which decides one held job: make them, look at what one decides, and decide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.changes import show
from lcp_engine.changes.show import Look
from lcp_engine.clock import micros
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.approvers.link import name_of, read_link
from lcp_engine.features.approvers.link_decisions import (
    OpenLink,
    approve_by_link,
    check_held,
    check_linkable,
    check_open,
    check_unchanged,
    link_to,
    person_of,
    refused,
    reject_by_link,
)
from lcp_engine.features.approvers.secret_keys import read_key
from lcp_engine.features.approvers.settings import ApproverSettings, SignedLinks
from lcp_engine.store.people import Sight
from lcp_engine.store.queries.history import find_job, find_mission, known_id
from lcp_engine.store.queries.records import Job


@dataclass(frozen=True)
class LinkedJob:
    """What a link decides: the job as it is now, and what it would change.

    `person` is whose link it is, if it is one person's; `needs_token` says whether a token of an approver is needed.
    """

    job: Job
    look: Look
    person: str | None
    needs_token: bool


@dataclass(frozen=True)
class DecisionLinks:
    """Signed links; `Engine.links` is one. The configuration says where they lead and what they are signed with."""

    _instance: Instance

    def make(self, job_id: int, *, person: str | None = None, expires: timedelta | None = None) -> str:
        """A URL that decides this job once, as it is now, until it expires; with a `person`, an approver, theirs alone.

        Raises `NOT_FOUND`, `WRONG_STATE` for a job that is not held or is a question, `NO_WORKER`, and
        `INVALID_ARGUMENT` without a configuration of links, without its secret, for a time that is not positive, and
        for a person who is not an approver.
        """
        stated, approvers = self._stated(), self._settings.approvers
        if person is not None and person not in approvers:
            message = f"a link for {person!r} needs an approver of that name; {nearest(person, [*approvers])}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        job = Job.read(self._instance.read(find_job, known_id("job", job_id)))
        self._instance.read(check_linkable, self._instance.admission.workers, job.id)
        sight = show.look_over(self._instance, [job.json])[job.id].sight
        lasts = stated.expires if expires is None else expires
        if lasts <= timedelta():
            message = f"a link lasts {lasts.total_seconds():g} s; more than 0 is expected"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        until = self._instance.database.now() + micros(lasts)
        uid = str(self._instance.read(find_mission, job.mission_id)["uid"])
        sight = replace(sight, job_id=job.id)
        return link_to(stated.url, read_key(stated), sight, until=until, person=person, mission=uid)

    def open(self, token: str) -> LinkedJob:
        """What the link decides; nothing is recorded. `token` is what follows `/d/` in its URL.

        Raises `LINK_REFUSED` for one that was edited, has expired or was used; `CONFLICT` if the job was decided
        otherwise, or is not what it was when the link was made; `NOT_FOUND`.
        """
        opened = self._read(token, None)
        self._instance.read(check_open, opened)
        job = Job.read(self._instance.read(find_job, opened.link.job_id))
        self._instance.read(check_held, job.id)
        look = show.look_over(self._instance, [job.json])[job.id]
        self._instance.read(check_unchanged, opened.link, look.sight)
        return LinkedJob(job, look, opened.link.person, bool(self._settings.approvers))

    def approve(self, token: str, *, shown: Sight, approver_token: str = "") -> int:
        """Approve the job of the link as it was `shown` in full; its id. Raises like `open` and `Engine.approve`.

        Where there are approvers, the `approver_token` of one says who decides.
        """
        opened = self._read(token, approver_token)
        now = show.sight_now(self._instance, opened.link.job_id, None)
        self._instance.write(approve_by_link, self._instance.admission, opened, now=now, shown=shown)
        return opened.link.job_id

    def reject(self, token: str, reason: str, *, approver_token: str = "") -> int:
        """Reject the job of the link; its id. Raises like `open`; `approver_token` is that of `approve`."""
        opened = self._read(token, approver_token)
        now = show.sight_now(self._instance, opened.link.job_id, None)
        self._instance.write(reject_by_link, opened, reason, now=now)
        return opened.link.job_id

    def _read(self, token: str, approver_token: str | None) -> OpenLink:
        link = read_link(token, read_key(self._stated()))
        if link is None:
            raise refused("it is not as it was signed, or was signed with another secret", "edited")
        return OpenLink(link, name_of(token), person_of(link, self._settings.approvers, approver_token))

    def _stated(self) -> SignedLinks:
        if (stated := self._settings.links) is None:
            message = "signed links need `links` in config.yaml, with url and secret_file or secret_env"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
        return stated

    @property
    def _settings(self) -> ApproverSettings:
        return self._instance.settings(ApproverSettings)


class LinkCalls(KernelEngine):
    """Calls about signed links."""

    @property
    def links(self) -> DecisionLinks:
        """Signed links that decide one job each."""
        return DecisionLinks(self.instance)
