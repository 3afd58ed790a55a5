"""Entries that a mission leaves in the memory of its root: findings, results, what people said, and errors (R18).

Each is stored in the transaction in which it happens, unless the mission says `memory: {write: false}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pydantic import JsonValue

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.decide import End
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.protocol.actions import Action, AnalysisResult, Malformed, MissionComplete
from lcp_engine.core.summaries import question_in, subject_of
from lcp_engine.engine.points import Observer, Store
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.memory.entries import (
    MOST_CONTENT,
    MOST_FILES,
    MOST_TAGS,
    MOST_TITLE,
    Entry,
    tidy_path,
)
from lcp_engine.features.memory.mission_keys import MemoryKeys
from lcp_engine.features.memory.remember import RootPlace, add, clean
from lcp_engine.features.memory.store import memories
from lcp_engine.features.memory.store.memories import Origin
from lcp_engine.features.memory.worker import MemoryEffect
from lcp_engine.store.changes import written_paths
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queries.mission_spec import known_root
from lcp_engine.store.row_types import JobRow, MissionRow
from lcp_engine.workers.base import Stored

DAY: Micros = 86_400 * SECOND
_MOST_ITEMS = 50
_MOST_GOAL = 500


class Lesson(Enum):
    """Kinds of statements that missions leave: their source, tag and importance, and for how many days they stay."""

    ANALYSIS = ("analysis_result", "analysis", 6, 180)
    SUMMARY = ("mission_summary", "summary", 5, 180)
    ANSWER = ("user_answer", "answer", 6, 365)
    CORRECTION = ("user_correction", "correction", 6, 365)
    ERROR = ("mission_error", "error", 4, 30)


@dataclass(frozen=True)
class _Note:
    lesson: Lesson
    title: str
    content: str
    files: Sequence[str] = ()


def keep_reply(ledger: Ledger, job: JobRow, reply: Action | Malformed, end: End) -> None:
    """Remember the findings or the summary that a plan succeeds with; those of a part of a mission, too."""
    if not end.succeeded:
        return
    mission = ledger.mission(job.mission_id)
    match reply:
        case AnalysisResult():
            files = [reply.target_file] if reply.target_file else []
            lists = {"Issues": reply.issues, "Recommendations": reply.recommendations}
            content = "\n\n".join(
                [reply.summary.strip(), *(_listed(name, these) for name, these in lists.items() if these)]
            )
            _keep(ledger, mission, _Note(Lesson.ANALYSIS, reply.summary, content, files), job)
        case MissionComplete():
            paths = written_paths(ledger.tx, mission.id)
            content = f"Goal: {_cut(mission.goal.strip(), _MOST_GOAL)}\nResult: {reply.summary.strip()}"
            _keep(ledger, mission, _Note(Lesson.SUMMARY, mission.goal, content, paths), job)
        case _:
            return


def keep_failure(ledger: Ledger, mission: MissionRow, end: End, error: str | None) -> None:
    """Remember why a mission has failed; a limit that was reached says nothing about its root."""
    if error is None or end.succeeded or end.limit is not None:
        return
    said = from_json(error).get("user_message")
    if isinstance(said, str):
        content = f"Goal: {_cut(mission.goal.strip(), _MOST_GOAL)}\nError: {said}"
        _keep(ledger, mission, _Note(Lesson.ERROR, said, content), None)


def keep_answer(ledger: Ledger, job: JobRow, answer: str, by: str) -> None:
    """Remember what a person answered to a question of the planner, not to one that the engine asked."""
    question = question_in(from_json(job.params))
    if job.fingerprint is not None and question:
        content = f"Question: {question.strip()}\nAnswer of {by}: {answer.strip()}"
        _keep(ledger, ledger.mission(job.mission_id), _Note(Lesson.ANSWER, question, content), job, by)


def keep_rejection(ledger: Ledger, job: JobRow, reason: str, by: str) -> None:
    """Remember why a person refused what a planner asked for."""
    if job.fingerprint is not None and reason.strip():
        named = from_json(job.params)
        title = f"{by} refused {job.kind} {subject_of(named, job.name)}"
        files = [str(named[key]) for key in ("rel_path", "path") if isinstance(named.get(key), str)]
        content = f"{title}: {reason.strip()}"
        _keep(
            ledger, ledger.mission(job.mission_id), _Note(Lesson.CORRECTION, title, content, files), job, by
        )


def keep_message(ledger: Ledger, mission: MissionRow, text: str, by: str) -> None:
    """Remember what a person told a planner on its way."""
    _keep(ledger, mission, _Note(Lesson.CORRECTION, text, f"{by} said: {text.strip()}"), None, by)


OBSERVER = Observer(
    replied=keep_reply,
    answered=keep_answer,
    rejected=keep_rejection,
    said=keep_message,
    ended=keep_failure,
)


def keep_proposal(ledger: Ledger, job: JobRow, stored: Stored) -> Failed | None:
    """Remember what a planner proposes (`remember`), or say why not."""
    assert isinstance(stored, MemoryEffect)
    entry, mission = stored.entry, ledger.mission(job.mission_id)
    spec = spec_of(mission.spec)
    if not MemoryKeys.of(spec).memory.propose or mission.root is None:
        advice = "Set memory.propose to true in the mission file, or `lcp memory add` the entry."
        message = f"mission {mission.id} does not let its planner propose entries of memory"
        return Failed(ErrorCode.NOT_ALLOWED, message, advice=advice)
    tags = tuple(dict.fromkeys((*entry.tags, *MemoryKeys.of(spec).memory.tags)))[:MOST_TAGS]
    root = known_root(ledger.tx, mission.id)
    place = RootPlace(mission.root, None if root is None else root.identity)
    try:
        add(ledger, place, replace(entry, tags=tags), Origin(mission_id=mission.id, job_id=job.id))
    except LcpError as refused:
        return refused.failed
    return None


PROPOSALS = Store(keep_proposal)


def _keep(
    ledger: Ledger, mission: MissionRow, note: _Note, job: JobRow | None, by: str | None = None
) -> None:
    """Store a note; one that cannot be kept, such as about a secret file, is left out."""
    spec = spec_of(mission.spec)
    if mission.root is None or not MemoryKeys.of(spec).memory.write:
        return
    root = known_root(ledger.tx, mission.id)
    source, tag, importance, days = note.lesson.value
    files = [tidy for file in note.files if (tidy := tidy_path(file)) is not None]
    entry = Entry(
        title=_title(note.title),
        content=_cut(note.content, MOST_CONTENT),
        tags=(tag, *MemoryKeys.of(spec).memory.tags),
        files=tuple(dict.fromkeys(files))[:MOST_FILES],
        importance=importance,
        source=source,
        expires_at=ledger.tx.now + days * DAY,
    )
    try:
        kept = clean(entry)
    except LcpError:
        return
    known = memories.open_root(ledger.tx, mission.root, None if root is None else root.identity)
    origin = Origin(author=by, mission_id=mission.id, job_id=None if job is None else job.id)
    memories.add_entry(ledger.tx, known.id, replace(kept, tags=kept.tags[:MOST_TAGS]), origin)


def _title(text: str) -> str:
    """The first line of a text, as long as a title may be."""
    return _cut(next((line.strip() for line in text.splitlines() if line.strip()), ""), MOST_TITLE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _listed(name: str, items: Sequence[JsonValue]) -> str:
    lines = [f"- {item if isinstance(item, str) else to_json(item)}" for item in items[:_MOST_ITEMS]]
    return "\n".join([f"{name}:", *lines])
