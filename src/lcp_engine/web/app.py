"""The routes of the page, behind access control."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from lcp_engine.core.decision_link import PATH
from lcp_engine.errors import LcpError
from lcp_engine.web import (
    actions,
    changes,
    edit,
    evals,
    events,
    inbox,
    jobs,
    kinds,
    launch,
    links,
    memory,
    missions,
    overview,
    replay,
    undo,
)
from lcp_engine.web.access import AccessControl, Address, OnUsed, Secrets
from lcp_engine.web.context import PACKAGE, PageContext
from lcp_engine.web.error_pages import ErrorHandlers, make_error_page
from lcp_engine.web.forms import form_endpoint

READ_ROUTES = (
    Route("/", missions.missions),
    Route("/missions/{mission}", missions.tree),
    Route("/missions/{mission}/timeline", missions.timeline),
    Route("/missions/{mission}/plan", missions.plan),
    Route("/missions/{mission}/history", missions.history),
    Route("/missions/{mission}/report", missions.report),
    Route("/missions/{mission}/report.md", missions.report_text),
    Route("/missions/{mission}/questions/{number}", missions.question),
    Route("/missions/{mission}/questions/{number}/prompt.txt", missions.prompt_text),
    Route("/missions/{mission}/settings", missions.settings),
    Route("/missions/{mission}/fork", replay.fork_form),
    Route("/missions/{mission}/replay", replay.replay_form),
    Route("/missions/{mission}/changes", changes.changed_files),
    Route("/missions/{mission}/undo", undo.undo_form),
    Route("/jobs", jobs.jobs),
    Route("/jobs/{job}", jobs.job),
    Route("/jobs/{job}/json", jobs.job_json),
    Route("/jobs/{job}/diff", changes.job_diff),
    Route("/jobs/{job}/diff.txt", changes.job_patch),
    Route("/jobs/{job}/policy", jobs.policy),
    Route("/jobs/{job}/edit", edit.edit_form),
    Route("/jobs/{job}/undo", undo.undo_form),
    Route("/kinds", kinds.kinds),
    Route("/kinds/{kind}", kinds.kind),
    Route("/kinds/{kind}/json", kinds.kind_json),
    Route("/inbox", inbox.inbox),
    Route("/inbox/all", inbox.decide_all_form),
    Route("/launch", launch.launch_form),
    Route("/launch/own", launch.own_form),
    Route("/memory", memory.memory_list),
    Route("/memory/{entry}", memory.memory_entry),
    Route("/overview", overview.overview),
    Route("/evals", evals.evals),
    Route("/events", events.events),
    Route("/missions/{mission}/events", events.events),
)
ACTIONS = {
    "/jobs/{job}/approve": actions.approve,
    "/jobs/{job}/always": actions.approve_always,
    "/jobs/{job}/reject": actions.reject,
    "/jobs/{job}/retry": actions.retry,
    "/jobs/{job}/edit": edit.edit,
    "/jobs/{job}/answer": actions.answer,
    "/jobs/{job}/say": actions.say_about_job,
    "/jobs/{job}/undo": undo.undo,
    "/missions/{mission}/say": actions.say,
    "/missions/{mission}/rules/{number}/remove": actions.remove_rule,
    "/missions/{mission}/undo": undo.undo,
    "/missions/{mission}/cancel": actions.cancel,
    "/missions/{mission}/resume": actions.resume,
    "/missions/{mission}/fork": replay.fork,
    "/missions/{mission}/replay": replay.replay,
    "/inbox": inbox.decide_ticked,
    "/inbox/all": inbox.decide_all,
    "/launch": launch.launch,
    "/launch/own": launch.launch_own,
    "/schedules/launch": overview.launch_scheduled,
    "/schedules/remove": overview.remove_schedule,
    "/view": changes.choose_view,
    "/memory/{entry}/edit": memory.edit,
    "/memory/{entry}/forget": memory.forget,
}

LINK_ROUTES = (
    Route(f"{PATH}{{token}}", links.link),
    Route(f"{PATH}{{token}}", links.decide, methods=["POST"]),
)
"""What a signed link opens, without access to the rest."""


def make_app(
    context: PageContext, secrets: Secrets, address: Address, on_used: OnUsed = lambda: None
) -> ASGIApp:
    """The whole page, for browsers that know `secrets`; `on_used` is called when a link has been used."""
    handlers = ErrorHandlers(context.templates)
    app = Starlette(
        routes=[
            *READ_ROUTES,
            *(Route(path, form_endpoint(action), methods=["POST"]) for path, action in ACTIONS.items()),
            *LINK_ROUTES,
            Mount("/static", StaticFiles(directory=PACKAGE / "static")),
        ],
        # It leaves `text/event-stream` alone. Secrets beside text of others are safe to compress here: a page of
        # another site cannot make the browser send the cookie, which is SameSite=Strict.
        middleware=[Middleware(GZipMiddleware, minimum_size=1400, compresslevel=1)],
        exception_handlers={
            LcpError: handlers.lcp_error,
            HTTPException: handlers.http_error,
            Exception: handlers.defect,
        },
    )
    app.state.context = context
    # Around everything, so that error pages have the security headers as well.
    error_page = make_error_page(context.templates)
    return AccessControl(app, secrets=secrets, address=address, error_page=error_page, on_used=on_used)
