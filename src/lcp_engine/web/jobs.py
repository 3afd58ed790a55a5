"""Show jobs: the search, and one with params, result, attempts and events."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.engine.records import Job
from lcp_engine.jobs import RETRY, State
from lcp_engine.report import TURN_KIND
from lcp_engine.store import paging
from lcp_engine.store.paging import JobFilter
from lcp_engine.visible import json_block
from lcp_engine.web.desk import Desk, desk_of
from lcp_engine.web.forms import number
from lcp_engine.web.missions import cursor

JOBS = 50
EVENTS = 200
LONGEST_TEXT = 200
LARGEST_EDIT = 256 * 1024
"""Params with more characters are not edited in a browser; percent-encoded they would not fit a form."""


def jobs(request: Request) -> Response:
    """Jobs that fit kind, state, mission and text, the newest first."""
    desk = desk_of(request)
    wanted = read_filter(request, request.query_params.getlist("state"))
    before = cursor(request, "before")
    page = desk.read(lambda tx: paging.page_jobs(tx, wanted, behind=before, limit=JOBS, newest_first=True))
    return desk.page("jobs.html", page=page, wanted=wanted, before=before, kinds=sorted(desk.engine.workers))


def job(request: Request) -> Response:
    """One job."""
    return show_job(desk_of(request), request)


def show_job(
    desk: Desk, request: Request, *, status: int = 200, problem: str = "", params: str = "", reason: str = ""
) -> Response:
    """A job's page; with a problem, what was entered stands in the form again."""
    found = desk.engine.job(number(request.path_params["job"]))
    mission = desk.engine.mission(found.mission_id)
    written = json_block(found.params)
    events = desk.engine.events(found.mission_id, job_id=found.id, limit=EVENTS)
    return desk.page(
        "job.html",
        status=status,
        job=found.json,
        mission=mission.json,
        problem=problem,
        events=events,
        params=params or written,
        reason=reason,
        note=request.query_params.get("note"),
        is_editable=len(written) <= LARGEST_EDIT,
        is_executable=found.kind in desk.engine.workers,
        may_retry=_may_retry(found),
    )


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


def _may_retry(found: Job) -> bool:
    return State(found.state) in RETRY.sources and found.kind != TURN_KIND
