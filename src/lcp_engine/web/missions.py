"""Show missions: the list, and one as a tree, a timeline, a history and a report."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lcp_engine.api.records import Mission
from lcp_engine.core.safe_text import block
from lcp_engine.engine.reports.markdown import Report, as_markdown, make_report
from lcp_engine.engine.reports.structured import respond
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.queries import pages
from lcp_engine.store.queries.pages import JobFilter, Page
from lcp_engine.store.schema import STATUSES
from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.form_post import number
from lcp_engine.web.job_tree import grow
from lcp_engine.web.timeline_chart import draw

MISSIONS = 30
JOBS = 200
EVENTS = 300
LISTED = 100


def missions(request: Request) -> Response:
    """Missions, the newest first."""
    desk = desk_of(request)
    status = request.query_params.get("status", "")
    before = cursor(request, "before")
    page = desk.read(lambda tx: pages.page_missions(tx, before=before, status=status, limit=MISSIONS))
    return desk.page(
        "missions.html",
        page=page,
        before=before,
        chosen=status,
        statuses=STATUSES,
        note=request.query_params.get("note"),
        works=desk.read(pages.count_runners) > 0,
    )


def tree(request: Request) -> Response:
    """A mission as its turns, and under each what it asked for."""
    return show_mission(desk_of(request), request)


def show_mission(
    desk: Desk, request: Request, *, status: int = 200, problem: str = "", entered: JsonObject | None = None
) -> Response:
    """A mission's own page; with a problem, what was entered stands in the form again."""
    mission = _mission(desk, request)
    page = _jobs(desk, request, mission)
    first, last = _range(page)
    questions = desk.read(lambda tx: pages.find_turn_heads(tx, mission.id, first, last))
    return desk.page(
        "mission.html",
        status=status,
        mission=mission.json,
        tab="",
        page=page,
        after=cursor(request, "after"),
        branches=grow(page.rows, questions),
        note=request.query_params.get("note"),
        problem=problem,
        entered=entered or {},
        works=desk.read(pages.count_runners) > 0,
        may_undo=desk.read(lambda tx: pages.has_changed(tx, mission.id)),
    )


def timeline(request: Request) -> Response:
    """When the jobs of a mission waited and ran."""
    desk = desk_of(request)
    mission = _mission(desk, request)
    page = _jobs(desk, request, mission)
    first, last = _range(page)
    moves = desk.read(lambda tx: pages.find_moves(tx, mission.id, first, last))
    drawn = draw(page.rows, moves, datetime.now(UTC))
    return desk.page(
        "timeline.html",
        mission=mission.json,
        tab="timeline",
        page=page,
        after=cursor(request, "after"),
        drawn=drawn,
    )


def history(request: Request) -> Response:
    """The events of a mission, in order."""
    desk = desk_of(request)
    mission = _mission(desk, request)
    after = cursor(request, "after") or 0
    events = desk.engine.events(mission.id, after_seq=after, limit=EVENTS + 1)
    behind = events[EVENTS - 1]["seq"] if len(events) > EVENTS else None
    page = Page(events[:EVENTS], behind if isinstance(behind, int) else None)
    return desk.page("history.html", mission=mission.json, tab="history", page=page, after=after)


def report(request: Request) -> Response:
    """What was done, written, refused; what waits; what the planner said."""
    desk = desk_of(request)
    mission = _mission(desk, request)
    facts, course = desk.engine.standing(mission.id, most=LISTED)
    return desk.page(
        "report.html",
        mission=mission.json,
        tab="report",
        report=make_report(facts),
        response=respond(facts, course).as_json(),
    )


def report_text(request: Request) -> Response:
    """The report as Markdown."""
    desk = desk_of(request)
    return PlainTextResponse(block(as_markdown(_report(desk, _mission(desk, request)))))


def question(request: Request) -> Response:
    """What the planner was asked, and what it replied."""
    desk = desk_of(request)
    mission = _mission(desk, request)
    asked = number(request.path_params["number"])
    found = desk.read(lambda tx: pages.find_turn(tx, mission.id, asked))
    return desk.page("question.html", mission=mission.json, tab="question", question=found)


def prompt_text(request: Request) -> Response:
    """What the planner was asked, all of it."""
    desk = desk_of(request)
    mission = _mission(desk, request)
    asked = number(request.path_params["number"])
    found = desk.read(lambda tx: pages.find_turn(tx, mission.id, asked))
    return PlainTextResponse(block(str(found["prompt"] or "")))


def cursor(request: Request, name: str) -> int | None:
    """The id that a page of a list begins behind. Raises a 422 for what is no id."""
    text = request.query_params.get(name, "")
    return number(text) if text else None


def _mission(desk: Desk, request: Request) -> Mission:
    return desk.engine.mission(number(request.path_params["mission"]))


def _jobs(desk: Desk, request: Request, mission: Mission) -> Page:
    after = cursor(request, "after")
    return desk.read(lambda tx: pages.page_jobs(tx, JobFilter(mission.id), behind=after, limit=JOBS))


def _range(page: Page) -> tuple[int, int]:
    ids = [row["id"] for row in page.rows if isinstance(row["id"], int)]
    return (ids[0], ids[-1]) if ids else (0, 0)


def _report(desk: Desk, mission: Mission) -> Report:
    return make_report(desk.engine.facts(mission.id, most=LISTED))
