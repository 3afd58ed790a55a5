"""The inbox as values: what each held job awaits from a person, what may be done about it, and what is known of it.

Command line, page and `lcp top` show these values; none of them works out its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from lcp_engine.api.queries import approvals_for
from lcp_engine.changes.own_kinds import own_kind
from lcp_engine.changes.show import Look, look_over
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.core.inbox import Act, Awaits, acts_on, awaited_by
from lcp_engine.core.json_values import int_in
from lcp_engine.core.policy import Approvals
from lcp_engine.core.protocol.question_form import FormField
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.people.approvals import question_shown
from lcp_engine.engine.people.subjects import Subjects
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.people import drop_viewed, keep_viewed, viewed_by
from lcp_engine.store.queries import history
from lcp_engine.store.queries.held_jobs import are_heard, find_awaited_replies, find_expiries
from lcp_engine.store.queries.records import Job
from lcp_engine.workers.ask_user import asked_in
from lcp_engine.workers.base import ExecutedBy
from lcp_engine.workers.engine_kinds import engine_workers

_MARK = re.compile(r"[0-9a-f]{32}")


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
    questions: Sequence[JsonObject]
    """Those of a turn that awaits a reply."""

    @property
    def question(self) -> JsonObject | None:
        """The one that a person is to reply to."""
        return self.questions[-1] if self.questions else None


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
        return Review(held, job, look, approvals, turns)

    def _has_worker(self, kind: str) -> bool:
        worker = engine_workers().get(kind) or self._instance.admission.workers.get(kind)
        return worker is not None and worker.executed_by is not ExecutedBy.PERSON


def mark_of(diff: Diff) -> str:
    """Names what is shown of a file, to the last character and with its path: anything else has another mark."""
    shown = "\0".join([diff.path, diff.note or "", *diff.lines])
    return hashlib.sha256(shown.encode(errors="surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True)
class ViewedFiles:
    """Marks of a person in one mission, so that a file that is shown again by a later job is still viewed."""

    _instance: Instance
    _mission_id: int
    _person: str

    def marks(self) -> dict[str, bool]:
        """Each mark, and whether all of what it names had been on the person's screen."""
        return self._instance.read(viewed_by, self._mission_id, self._person)

    def add(self, mark: str, *, was_seen: bool) -> None:
        """Mark what a file was shown as. Raises `INVALID_ARGUMENT` for what no `mark_of` has made."""
        if not _MARK.fullmatch(mark):
            message = f"{mark[:40]!r} is not the mark of a file; nothing was marked"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
        self._instance.database.write(
            lambda tx: keep_viewed(tx, self._mission_id, self._person, mark, was_seen=was_seen)
        )

    def remove(self, mark: str) -> None:
        """Take a mark back; nothing happens without one."""
        self._instance.database.write(lambda tx: drop_viewed(tx, self._mission_id, self._person, mark))
