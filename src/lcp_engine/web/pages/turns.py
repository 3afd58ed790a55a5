"""Pages of one turn: the prompt by its sections, the reply as it was read; and events grouped by turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lcp_engine import Mission
from lcp_engine.api.pages import JobFilter, JsonObject
from lcp_engine.api.read_reply import read_reply
from lcp_engine.core.json_values import int_in, object_in
from lcp_engine.core.kinds import TURN
from lcp_engine.core.protocol.actions import CreateFollowupJobs, Malformed, WriteFile
from lcp_engine.core.safe_text import block
from lcp_engine.core.summaries import subject, subject_of
from lcp_engine.errors import NotFound
from lcp_engine.web.context import LONGEST, PageContext, context_of
from lcp_engine.web.forms import number

MOST_LISTED = 200
"""Jobs of a reply that its page lists."""
_ASKED = "asked"
_ROLE = re.compile(r"\[(system|user|assistant)\]\n")
_FENCE = re.compile(r"`{3,}")
_OF_FRAME = {"ok", "action", "new_jobs", "root", "rel_path", "content", "mode", "commentary"}


def question(request: Request) -> Response:
    """One question to the planner, and its reply."""
    context = context_of(request)
    mission, asked = _asked(context, request)
    return context.render(
        "question.html",
        mission=mission.json,
        tab="question",
        question=asked,
        sections=prompt_sections(str(asked["prompt"] or "")[:LONGEST]),
        reading=_read(context, mission, asked),
        draft=context.engine.drafts(mission.id).get(int_in(asked["job_id"])),
    )


def prompt_text(request: Request) -> Response:
    """The whole prompt of one question, as text."""
    _, asked = _asked(context_of(request), request)
    return PlainTextResponse(block(str(asked["prompt"] or "")))


def _asked(context: PageContext, request: Request) -> tuple[Mission, JsonObject]:
    mission = context.engine.mission(number(request.path_params["mission"]))
    return mission, context.queries.turn(mission.id, number(request.path_params["number"]))


@dataclass(frozen=True)
class Section:
    """A part of a prompt below its heading; `role` is the message that it begins, empty within one."""

    role: str
    title: str
    text: str


def prompt_sections(prompt: str) -> list[Section]:
    """The sections of a prompt as it is stored. Pure. A heading between fences is part of a file or a result."""
    sections = list[Section]()
    role, title, fence, lines = "", "", "", list[str]()
    for line in [*prompt.splitlines(keepends=True), None]:
        if line is not None and (mark := _FENCE.match(line)) and (not fence or line.strip() == fence):
            fence = "" if fence else mark[0]
        opened = _ROLE.fullmatch(line) if line is not None and not fence else None
        if line is not None and opened is None and (fence or not line.startswith("# ")):
            lines.append(line)
            continue
        text = "".join(lines).strip("\n")
        if text.strip():
            sections.append(Section(role, title, text))
            role = ""
        role, title, lines = (opened[1], "", []) if opened else (role, (line or "")[2:].strip(), [])
    return sections


@dataclass(frozen=True)
class Requested:
    """A job that a reply asks for, and the job that came of it; None if none did."""

    kind: str
    about: str
    job: JsonObject | None


@dataclass(frozen=True)
class Reading:
    """A reply as an action: the words that go with it, its other fields, and the jobs that it asks for."""

    action: str
    commentary: str | None
    fields: JsonObject
    requested: Sequence[Requested]
    recovered: Sequence[str]


def _read(context: PageContext, mission: Mission, asked: JsonObject) -> Reading | None:
    """The reading of a reply; None if it was not valid, or cannot be read any more."""
    text = asked["reply"]
    if not isinstance(text, str) or asked["action"] is None:
        return None
    try:
        dialect = context.queries.spec(mission.id).planner.dialect
    except NotFound:
        return None
    read = read_reply(text, dialect, {kind: one.params for kind, one in context.engine.workers.items()})
    if isinstance(read, Malformed):
        return None
    job_id = int_in(asked["job_id"])
    made = context.queries.jobs(
        JobFilter(mission.id), behind=job_id, limit=MOST_LISTED, newest_first=False
    ).rows
    jobs = [job for job in made if job["parent_id"] == job_id and job["kind"] != TURN]
    requested = list[Requested]()
    for spec in read.requested[:MOST_LISTED] if isinstance(read, CreateFollowupJobs | WriteFile) else ():
        about = subject_of(spec.params, spec.name)
        found = next((job for job in jobs if (job["kind"], subject(job)) == (spec.kind, about)), None)
        jobs = [job for job in jobs if job is not found]
        requested.append(Requested(spec.kind, about, found))
    requested += [Requested(str(job["kind"]), subject(job), job) for job in jobs]
    fields = read.model_dump(mode="json", exclude=_OF_FRAME, exclude_none=True)
    return Reading(str(asked["action"]), read.commentary, fields, requested, read.recovered)


@dataclass(frozen=True)
class TurnEvents:
    """Events of one turn and the jobs that it led to, in their order or the newest first."""

    title: str
    rows: Sequence[JsonObject]

    @property
    def began(self) -> str:
        """The time of the oldest."""
        return min(str(event["at"]) for event in self.rows)

    @property
    def ended(self) -> str:
        """The time of the newest."""
        return max(str(event["at"]) for event in self.rows)


def by_turn(events: Sequence[JsonObject]) -> list[TurnEvents]:
    """Events in their order, grouped by the turn that was the last to begin; the newest first. Pure."""
    turns = {
        event["job_id"]: object_in(event["data"]).get("turn") for event in events if event["event"] == _ASKED
    }
    groups = list[tuple[object, list[JsonObject]]]()
    for event in events:
        turn = turns.get(event["job_id"]) if event["event"] in ("queued", _ASKED) else None
        if not groups or turn not in (None, groups[-1][0]):
            groups.append((turn, []))
        groups[-1][1].append(event)
    return [
        TurnEvents(_title(turn, rows[0], groups), rows[::-1]) for turn, rows in reversed(groups)
    ]  # fmt: skip


def _title(turn: object, first: JsonObject, groups: Sequence[tuple[object, object]]) -> str:
    if turn is not None:
        return f"Turn {turn}"
    if first["seq"] == 1:
        return "Launch"
    return f"Before turn {groups[1][0]}" if len(groups) > 1 else "Events"
