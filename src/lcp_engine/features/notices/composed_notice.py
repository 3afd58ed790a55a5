"""Compose the notice that a mission waits: its held jobs, with what each would change now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from pydantic import JsonValue

from lcp_engine.changes.show import Look, look_over
from lcp_engine.clock import Micros, iso, micros
from lcp_engine.core.json_values import int_in, list_in, object_in
from lcp_engine.core.kinds import QUESTION
from lcp_engine.core.reasons import ReasonCode, explain_reason
from lcp_engine.core.summaries import named_path, question_in
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.people.subjects import Subjects
from lcp_engine.errors import LcpError
from lcp_engine.features.approvers.link_decisions import WAIT_FOR_WORDS, link_to
from lcp_engine.features.approvers.secret_keys import read_key
from lcp_engine.features.approvers.settings import ApproverSettings
from lcp_engine.features.notices.notice import DiffStat, HeldJob, JobLink, Notice, WaitingMission
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.people import hold_code
from lcp_engine.store.queries.held_jobs import find_expiries, time_of_event
from lcp_engine.store.queries.history import find_job, find_jobs, find_mission
from lcp_engine.store.queries.records import Job

MOST_JOBS = 100
"""The most held jobs that a notice lists."""


def compose_notice(instance: Instance, mission_id: int, seq: int) -> Notice:
    """The notice that the mission waits since its event `seq`, with what is held now. Raises `NOT_FOUND`."""
    wait = instance.read(_read_wait, mission_id, seq)
    links = _Links.of(instance)
    looks = look_over(instance, [one.job.json for one in wait.held])
    subjects = Subjects(instance.database)
    count = int_in(object_in(wait.mission["jobs"])["held"])
    return Notice(
        id=f"{wait.mission['uid']}-{seq}",
        at=iso(wait.at),
        mission=WaitingMission.model_validate(
            {key: wait.mission[key] for key in WaitingMission.model_fields}
        ),
        held=count,
        jobs=[
            _held_job(
                one,
                looks[one.job.id],
                subjects.of(one.job.json),
                links.to(one.job, looks[one.job.id], str(wait.mission["uid"])),
            )
            for one in wait.held
        ],
        links_error=links.fault,
        omitted=max(0, count - len(wait.held)),
    )


@dataclass(frozen=True)
class _Links:
    """Makes the links of a notice; none without a `key`, and `fault` says why there should be one."""

    instance: Instance
    key: bytes | None = None
    fault: str | None = None

    @classmethod
    def of(cls, instance: Instance) -> Self:
        links = instance.settings(ApproverSettings).links
        if links is None:
            return cls(instance)
        try:
            return cls(instance, read_key(links))
        except LcpError as error:
            return cls(instance, fault=str(error))

    def to(self, job: Job, look: Look, mission: str) -> list[JobLink]:
        settings, worker = (
            self.instance.settings(ApproverSettings),
            self.instance.admission.workers.get(job.kind),
        )
        stated = settings.links
        if stated is None or self.key is None or worker is None or worker.executed_by in WAIT_FOR_WORDS:
            return []
        until = self.instance.database.now() + micros(stated.expires)
        sight = replace(look.sight, job_id=job.id)
        persons: list[str | None] = [*sorted(settings.approvers)]
        return [
            JobLink(
                url=link_to(stated.url, self.key, sight, until=until, person=person, mission=mission),
                person=person,
                expires_at=iso(until),
            )
            for person in persons or [None]
        ]


@dataclass(frozen=True)
class _Held:
    """A held job: why, what the planner said, and when it is rejected without a decision."""

    job: Job
    code: ReasonCode | None
    words: str | None
    expires_at: str | None


@dataclass(frozen=True)
class _Wait:
    """A mission, when it started to wait, and what is held."""

    mission: JsonObject
    at: Micros
    held: tuple[_Held, ...]


def _read_wait(tx: Tx, mission_id: int, seq: int) -> _Wait:
    mission, at = find_mission(tx, mission_id), time_of_event(tx, mission_id, seq)
    found = find_jobs(tx, mission_id=mission_id, states=["held"], limit=MOST_JOBS)
    jobs, expiries = [Job.read(row) for row in found], find_expiries(tx)
    words = {
        turn: _words_of(find_job(tx, turn)["result"]) for turn in {job.parent_id for job in jobs} if turn
    }
    held = (
        _Held(job, hold_code(tx, mission_id, job.id), words.get(job.parent_id or 0), expiries.get(job.id))
        for job in jobs
    )
    return _Wait(mission, at, tuple(held))


def _words_of(result: JsonValue) -> str | None:
    said = object_in(result).get("commentary")
    return said if isinstance(said, str) else None


def _held_job(held: _Held, look: Look, about: str, links: list[JobLink]) -> HeldJob:
    job, diff = held.job, look.diff
    asks, options = job.kind == QUESTION, list_in(job.params.get("options"))
    return HeldJob(
        id=job.id,
        kind=job.kind,
        about=about,
        name=job.name,
        path=look.sight.path or named_path(job.params),
        reason=explain_reason(job.reason or "waits for a decision"),
        reason_code=None if held.code is None else held.code.value,
        words=held.words,
        question=question_in(job.params) if asks else None,
        options=[str(option) for option in options] if asks and options else None,
        diff=None
        if diff is None
        else DiffStat(
            path=diff.path, added=diff.added, removed=diff.removed, note=diff.note, is_whole=look.is_whole
        ),
        caveat=look.caveat or None,
        links=links or None,
        expires_at=held.expires_at,
    )
