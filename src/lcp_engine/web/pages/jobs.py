"""The job search, one job with params, result, attempts and events, and which policy rule decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine import Job
from lcp_engine.api.inbox import question_in
from lcp_engine.api.pages import JobFilter, JsonObject, Page
from lcp_engine.core.inbox import Act
from lcp_engine.core.job_states import RETRY, State
from lcp_engine.core.kinds import TURN, UNDO, kind_named
from lcp_engine.core.protocol.question_form import FormField
from lcp_engine.core.reasons import BY_PERSON, recorded_code
from lcp_engine.core.safe_text import json_block
from lcp_engine.web.context import LONGEST, PageContext, context_of
from lcp_engine.web.diff_view import is_shown
from lcp_engine.web.forms import Form, cursor, number, shown_value
from lcp_engine.web.pages.changes import hides_space, wants_split
from lcp_engine.web.pages.review import review_of
from lcp_engine.web.pages.turns import TurnEvents

JOBS = 50
EVENTS = 200
LONGEST_TEXT = 200
LARGEST_EDIT = 256 * 1024
"""Params with more characters are not edited in a browser: percent-encoded they exceed the limit of a request."""

Entered: TypeAlias = Mapping[str, JsonValue]
NOTHING: Entered = MappingProxyType({})


@dataclass(frozen=True)
class AskedField:
    """A field of a question's form as a page shows it."""

    field: FormField
    entered: JsonValue
    fault: str

    @property
    def value(self) -> str:
        """The text that a field for text contains."""
        return "" if self.entered is None else str(self.entered)

    def has(self, value: str) -> bool:
        """True if an option is chosen."""
        return value in self.entered if isinstance(self.entered, list) else value == self.entered


@dataclass(frozen=True)
class AskedForm:
    """A question's form; `shown` is the fingerprint of the question, to which an answer is bound."""

    fields: Sequence[AskedField]
    shown: str
    submit_label: str | None
    """Words of the planner for the button; None if it states none."""


def asked_form(params: Mapping[str, JsonValue], entered: Entered = NOTHING) -> AskedForm | None:
    """The form of a question, with what was `entered` in it or else the defaults; None if it has none."""
    typed, faults = entered.get("form"), entered.get("faults")
    values = typed if isinstance(typed, dict) else None
    told = faults if isinstance(faults, dict) else {}
    question = question_in(params)
    fields = [
        AskedField(
            field, field.default if values is None else values.get(field.id), str(told.get(field.id, ""))
        )
        for field in question.fields
    ]
    return AskedForm(fields, question.shown, question.submit_label) if fields else None


def entered_in(form: Form, field: FormField) -> JsonValue:
    """The value that was entered in a field; a browser sends nothing for a box that is not ticked."""
    name = f"field.{field.id}"
    match field.type:
        case "multi_select":
            return [*form.fields.get(name, [])]
        case "checkbox":
            return name in form.fields
        case _:
            return form.text(name)


def jobs(request: Request) -> Response:
    """The jobs that match kind, state, mission and text, the newest first."""
    context = context_of(request)
    wanted = read_filter(request, request.query_params.getlist("state"))
    before, is_oldest = cursor(request, "before"), "oldest" in request.query_params
    page = context.queries.jobs(
        wanted, behind=None if is_oldest else before, limit=JOBS, newest_first=not is_oldest
    )
    return context.render(
        "jobs.html",
        page=Page(page.rows[::-1], None) if is_oldest else page,
        is_oldest=is_oldest,
        counts=context.queries.job_counts(wanted),
        most=JOBS,
        wanted=wanted,
        before=before,
        kinds=sorted(context.engine.workers),
    )


def job(request: Request) -> Response:
    """One job."""
    return show_job(context_of(request), request)


def show_job(
    context: PageContext,
    request: Request,
    *,
    status: int = 200,
    problem: str = "",
    entered: Entered = NOTHING,
) -> Response:
    """A job's page; with a problem, its form contains what was `entered`."""
    engine = context.engine
    found = engine.job(number(request.path_params["job"]))
    mission = engine.mission(found.mission_id)
    review = engine.inbox.review(found.id) if found.state == State.HELD else None
    look = None if review is None else review.look
    acts = frozenset[Act]() if review is None else review.held.acts
    diffs = look.diffs if look is not None else engine.diff(found.id) if review is None else []
    was_stopped = not diffs and found.state in (State.REJECTED, State.CANCELLED)
    if was_stopped and (would := engine.look(found.id).diff) is not None:
        diffs = [would]
    is_split = wants_split(request)
    is_whole = look is not None and is_shown(look, (), found.params, longest=LONGEST)
    shown = shown_value(look.sight) if look is not None and is_whole else ""
    events = engine.events(found.mission_id, job_id=found.id, limit=EVENTS)
    questions = [] if review is None else review.questions
    if found.kind == TURN and not questions:
        questions = engine.turns(found.mission_id, job_id=found.id)
    return context.render(
        "job.html",
        status=status,
        job=found.json,
        mission=mission.json,
        words=context.queries.settings_of([found.json])[found.id].words,
        problem=problem,
        entered=entered,
        groups=[TurnEvents("", events)] if events else [],
        note=request.query_params.get("note"),
        awaits=None if review is None else review.held.awaits,
        acts=acts,
        has_kind=found.kind in engine.workers,
        questions=questions,
        question=None if review is None else review.question,
        options=question_in(found.params).options,
        asked=asked_form(found.params, entered) if Act.ANSWER in acts else None,
        is_split=is_split,
        review=review_of(
            context,
            found,
            diffs,
            has_choice=bool(look and look.has_choice),
            is_shown=bool(shown),
            is_split=is_split,
            hides_space=hides_space(request),
        )
        if diffs
        else None,
        caveat="" if look is None else look.caveat,
        shown=shown,
        approvals=None if review is None else review.approvals,
        always=engine.rules_for(found.id) if Act.RULE in acts else [],
        expires_at=None if review is None else review.held.expires_at,
        is_editable=is_editable(found),
        may_retry=_may_retry(found, events),
        was_stopped=was_stopped,
        may_undo=review is None and bool(diffs) and not was_stopped,
        is_undo=found.kind == UNDO,
        runners=context.runners(),
        next_held=_held_beside(context, found.id),
        previous_held=_held_beside(context, found.id, before=True),
    )


def _held_beside(context: PageContext, job_id: int, *, before: bool = False) -> JsonValue:
    """The id of the next held job, or of the one before; None if there is none."""
    held = JobFilter(None, [State.HELD])
    page = context.queries.jobs(held, behind=job_id, limit=1, newest_first=before)
    return page.rows[0]["id"] if page.rows else None


def _may_retry(found: Job, events: Sequence[JsonObject]) -> bool:
    """True if a person may queue the job again, or change their mind about it."""
    if found.kind == TURN or State(found.state) in RETRY.sources:
        return found.kind != TURN
    codes = [recorded_code(event["data"]) for event in events if isinstance(event["data"], dict)]
    return found.state == State.REJECTED and next(filter(None, reversed(codes)), None) in BY_PERSON


def is_editable(found: Job) -> bool:
    """True if the params are small enough for a form."""
    return len(json_block(found.params)) <= LARGEST_EDIT


def read_filter(request: Request, states: Sequence[str]) -> JobFilter:
    """The filter in the query; unknown states are ignored."""
    query = request.query_params
    return JobFilter(
        cursor(request, "mission"),
        [state for state in states if state in set(State)],
        kind_named(query.get("kind", "").strip(), context_of(request).engine.workers),
        query.get("text", "").strip()[:LONGEST_TEXT],
    )


def job_json(request: Request) -> Response:
    """The whole job as a JSON file, however large."""
    found = context_of(request).engine.job(number(request.path_params["job"]))
    headers = {"Content-Disposition": f'attachment; filename="job-{found.id}.json"'}
    return Response(json_block(found.json), media_type="application/json", headers=headers)


def policy(request: Request) -> Response:
    """The policy rules that are checked for a job, in order, and the one that decides."""
    context = context_of(request)
    found = context.engine.job(number(request.path_params["job"]))
    return context.render(
        "policy.html",
        job=found.json,
        mission=context.engine.mission(found.mission_id).json,
        explained=context.engine.explain_policy(found.id),
    )
