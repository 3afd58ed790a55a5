"""The inbox as values: what each held job awaits from a person, what may be done about it, and what is known of it.

Command line, page and `lcp top` show these values; none of them works out its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from lcp_engine.api.queries import approvals_for
from lcp_engine.changes.own_kinds import own_kind
from lcp_engine.changes.show import Look, look_over
from lcp_engine.core.inbox import Act, Awaits, acts_on, awaited_by
from lcp_engine.core.json_values import int_in
from lcp_engine.core.policy import Approvals
from lcp_engine.core.protocol.question_form import FormField
from lcp_engine.engine.approvals import question_shown
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.subjects import Subjects
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.queries import history
from lcp_engine.store.queries.held_jobs import are_heard, find_awaited_replies, find_expiries
from lcp_engine.store.queries.records import Job
from lcp_engine.workers.ask_user import asked_in
from lcp_engine.workers.base import ExecutedBy
from lcp_engine.workers.engine_kinds import engine_workers


@dataclass(frozen=True)
class Question:
    """A question to a person, with the ways to answer it besides words."""

    options: tuple[str, ...]
    fields: tuple[FormField, ...]
    """Its form; empty without one."""
    submit_label: str | None
    """Words of the planner for what sends the form."""
    shown: str
    """Its fingerprint, to which an answer is bound."""


def question_in(params: Mapping[str, JsonValue]) -> Question:
    """The question that the params of a job of the kind `ask_user` state."""
    options, asked = params.get("options"), asked_in(params) if params.get("fields") else None
    return Question(
        tuple(map(str, options)) if isinstance(options, list) else (),
        () if asked is None else tuple(asked.fields or ()),
        None if asked is None else asked.submit_label,
        question_shown(params),
    )


@dataclass(frozen=True)
class HeldJob:
    """A held job of a list, with what may be done about it."""

    job: JsonObject
    """The job as it was read; a list leaves out params that are large."""
    about: str
    """Its subject: the path in full, relative to the root of its mission, or other params, on one line."""
    awaits: Awaits
    acts: frozenset[Act]
    expires_at: str | None
    """When it is rejected unless someone decides (ISO 8601)."""
    has_ended: bool
    """True if its mission has."""

    @property
    def id(self) -> int:
        return int_in(self.job["id"])

    @property
    def mission_id(self) -> int:
        return int_in(self.job["mission_id"])

    @property
    def kind(self) -> str:
        return str(self.job["kind"])


@dataclass(frozen=True)
class Review:
    """A held job with all that a person is shown of it before they decide."""

    held: HeldJob
    job: Job
    look: Look | None
    """What it would change now, to which an approval is bound; None if it awaits words."""
    approvals: Approvals | None
    """Whose approvals it has and needs, if one person's yes is not enough."""
    question: JsonObject | None
    """The turn that a person is to reply to."""


@dataclass(frozen=True)
class Inbox:
    """The held jobs of a database. Nothing that is read here is noted as seen."""

    _instance: Instance

    def awaited(self, jobs: Iterable[tuple[int, str]]) -> dict[int, Awaits]:
        """The decision that each of these held jobs awaits, given by its id and kind, by its id."""
        replies = self._instance.read(find_awaited_replies)
        return {
            id_: awaited_by(kind, is_relayed=id_ in replies, has_worker=self._has_worker(kind))
            for id_, kind in jobs
        }

    def of(self, jobs: Sequence[JsonObject]) -> list[HeldJob]:
        """These held jobs, in their order, with what may be done about each; no file is read."""
        awaited = self.awaited((int_in(job["id"]), str(job["kind"])) for job in jobs)
        missions = self._instance.read(are_heard, {int_in(job["mission_id"]) for job in jobs})
        expiries, subjects = self._instance.read(find_expiries), Subjects(self._instance.database)
        found: list[HeldJob] = []
        for job in jobs:
            id_, kind = int_in(job["id"]), str(job["kind"])
            has_ended, is_heard = missions[int_in(job["mission_id"])]
            worker = self._instance.admission.workers.get(kind)
            may_have_rule = worker is not None and worker.may_have_rule
            change = Act.EDIT if (own := own_kind(kind)) is None else Act.TAKE if own.text else None
            acts = acts_on(awaited[id_], change, may_have_rule=may_have_rule, is_heard=is_heard)
            found.append(HeldJob(job, subjects.of(job), awaited[id_], acts, expiries.get(id_), has_ended))
        return found

    def review(self, job_id: int) -> Review:
        """A held job as it is now. Raises `NOT_FOUND`."""
        job = Job.read(self._instance.read(history.find_job, history.known_id("job", job_id)))
        (held,) = self.of([job.json])
        look = None if held.awaits.is_words else look_over(self._instance, [job.json])[job.id]
        asks = held.awaits is Awaits.APPROVAL
        approvals = approvals_for(self._instance, [job]).get(job.id) if asks else None
        turns = (
            self._instance.read(history.find_turns, job.mission_id, job_id=job.id)
            if held.awaits is Awaits.REPLY
            else []
        )
        return Review(held, job, look, approvals, turns[-1] if turns else None)

    def _has_worker(self, kind: str) -> bool:
        worker = engine_workers().get(kind) or self._instance.admission.workers.get(kind)
        return worker is not None and worker.executed_by is not ExecutedBy.PERSON
