"""Show jobs: the search, and one with params, result, attempts and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.api.records import Job
from lcp_engine.changes.restore import UNDO
from lcp_engine.core.job_states import RETRY, State
from lcp_engine.core.safe_text import json_block
from lcp_engine.engine.reports.markdown import TURN_KIND
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.queries import pages
from lcp_engine.store.queries.pages import JobFilter
from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.diff_excerpt import drawn
from lcp_engine.web.form_post import number
from lcp_engine.web.held_kind import options_of, wish_of
from lcp_engine.web.missions import cursor
from lcp_engine.web.shown_token import mark_of

JOBS = 50
EVENTS = 200
LONGEST_TEXT = 200
LARGEST_EDIT = 256 * 1024
"""Params with more characters are not edited in a browser; percent-encoded they would not fit a form."""

Entered: TypeAlias = Mapping[str, str]
NOTHING: Entered = MappingProxyType({})


def jobs(request: Request) -> Response:
    """Jobs that fit kind, state, mission and text, the newest first."""
    desk = desk_of(request)
    wanted = read_filter(request, request.query_params.getlist("state"))
    before = cursor(request, "before")
    page = desk.read(lambda tx: pages.page_jobs(tx, wanted, behind=before, limit=JOBS, newest_first=True))
    return desk.page("jobs.html", page=page, wanted=wanted, before=before, kinds=sorted(desk.engine.workers))


def job(request: Request) -> Response:
    """One job."""
    return show_job(desk_of(request), request)


def show_job(
    desk: Desk, request: Request, *, status: int = 200, problem: str = "", entered: Entered = NOTHING
) -> Response:
    """A job's page; with a problem, what was entered stands in its form again."""
    found = desk.engine.job(number(request.path_params["job"]))
    mission = desk.engine.mission(found.mission_id)
    look = desk.engine.look_over([found.json])[found.id] if found.state == State.HELD else None
    diffs = desk.engine.diff(found.id) if look is None else [look.diff] if look.diff else []
    wish = wish_of(found.json, desk.engine.workers)
    return desk.page(
        "job.html",
        status=status,
        job=found.json,
        mission=mission.json,
        problem=problem,
        entered=entered,
        events=desk.engine.events(found.mission_id, job_id=found.id, limit=EVENTS),
        note=request.query_params.get("note"),
        wish=wish,
        question=_question(desk, found) if look is not None and wish == "reply" else None,
        options=options_of(found.params),
        diffs=[drawn(diff) for diff in diffs],
        shown="" if look is None else mark_of(look.sight),
        expires_at=desk.engine.expiries().get(found.id) if look is not None else None,
        is_editable=is_editable(found),
        may_retry=_may_retry(found),
        may_speak=mission.status in ("running", "waiting") and mission.json["planner"] != "none",
        may_undo=look is None and bool(diffs),
        is_undo=found.kind == UNDO.kind,
    )


def is_editable(found: Job) -> bool:
    """Whether the params are small enough for a form."""
    return len(json_block(found.params)) <= LARGEST_EDIT


def read_filter(request: Request, states: Sequence[str]) -> JobFilter:
    """What the address asks for; states that there are not do not matter."""
    asked = request.query_params
    return JobFilter(
        cursor(request, "mission"),
        [state for state in states if state in set(State)],
        asked.get("kind", "").strip(),
        asked.get("text", "").strip()[:LONGEST_TEXT],
    )


def job_json(request: Request) -> Response:
    """The whole job as JSON, however large, as a file."""
    found = desk_of(request).engine.job(number(request.path_params["job"]))
    headers = {"Content-Disposition": f'attachment; filename="job-{found.id}.json"'}
    return Response(json_block(found.json), media_type="application/json", headers=headers)


def _question(desk: Desk, turn: Job) -> JsonObject | None:
    """What a person is to ask the planner for this turn."""
    asked = desk.engine.turns(turn.mission_id, job_id=turn.id)
    return asked[-1] if asked else None


def _may_retry(found: Job) -> bool:
    return State(found.state) in RETRY.sources and found.kind != TURN_KIND
