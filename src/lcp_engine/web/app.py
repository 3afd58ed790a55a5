"""The routes of the page, behind access control."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from types import FunctionType
from typing import Protocol, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from lcp_engine.errors import LcpError
from lcp_engine.feature import Unfit, installed, leave_out, load_all
from lcp_engine.web import events
from lcp_engine.web.access import AccessControl, Address, OnUsed, Secrets
from lcp_engine.web.context import PACKAGE, PageContext
from lcp_engine.web.error_pages import ErrorHandlers, make_error_page
from lcp_engine.web.forms import Action, form_endpoint
from lcp_engine.web.pages import (
    actions,
    changes,
    edit,
    inbox,
    jobs,
    kinds,
    launch,
    missions,
    overview,
    review,
    turns,
    undo,
)

Page: TypeAlias = Callable[[Request], Response]

PAGES: Sequence[tuple[str, Page]] = (
    ("/", missions.missions),
    ("/missions/{mission}", missions.tree),
    ("/missions/{mission}/timeline", missions.timeline),
    ("/missions/{mission}/plan", missions.plan),
    ("/missions/{mission}/history", missions.history),
    ("/missions/{mission}/report", missions.report),
    ("/missions/{mission}/report.md", missions.report_text),
    ("/missions/{mission}/questions/{number}", turns.question),
    ("/missions/{mission}/questions/{number}/prompt.txt", turns.prompt_text),
    ("/missions/{mission}/settings", missions.settings),
    ("/missions/{mission}/changes", changes.changed_files),
    ("/missions/{mission}/undo", undo.undo_form),
    ("/jobs", jobs.jobs),
    ("/jobs/{job}", jobs.job),
    ("/jobs/{job}/json", jobs.job_json),
    ("/jobs/{job}/row", inbox.row_of_job),
    ("/jobs/{job}/diff", changes.job_diff),
    ("/jobs/{job}/diff.txt", changes.job_patch),
    ("/jobs/{job}/images", changes.job_images),
    ("/jobs/{job}/policy", jobs.policy),
    ("/jobs/{job}/edit", edit.edit_form),
    ("/jobs/{job}/undo", undo.undo_form),
    ("/kinds", kinds.kinds),
    ("/kinds/{kind}", kinds.kind),
    ("/kinds/{kind}/json", kinds.kind_json),
    ("/inbox", inbox.inbox),
    ("/inbox/all", inbox.decide_all_form),
    ("/launch", launch.launch_form),
    ("/launch/own", launch.own_form),
    ("/overview", overview.overview),
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
    "/jobs/{job}/viewed": review.mark_viewed,
    "/missions/{mission}/say": actions.say,
    "/missions/{mission}/rules/{number}/remove": actions.remove_rule,
    "/missions/{mission}/undo": undo.undo,
    "/missions/{mission}/cancel": actions.cancel,
    "/missions/{mission}/resume": actions.resume,
    "/inbox": inbox.decide_ticked,
    "/inbox/all": inbox.decide_all,
    "/launch": launch.launch,
    "/launch/own": launch.launch_own,
    "/schedules/launch": overview.launch_scheduled,
    "/schedules/remove": overview.remove_schedule,
    "/view": changes.choose_view,
}

STREAM_ROUTES = (Route("/events", events.events), Route("/missions/{mission}/events", events.events))


def all_pages() -> list[tuple[str, Page]]:
    """Every page with the form of its path."""
    return [*PAGES, *_of_features(installed().pages, dict(PAGES))]


def all_actions() -> list[tuple[str, Action]]:
    """Every function that carries out the form of a page, with the form of its path."""
    return [*ACTIONS.items(), *_of_features(installed().actions, ACTIONS)]


def all_routes() -> list[Route]:
    """Streams, and routes of features that answer without access to the rest."""
    return [*STREAM_ROUTES, *(route for _, routes in load_all(installed().routes, tuple) for route in routes)]


def _of_features(
    stated: Mapping[str, str], own: Mapping[str, object]
) -> list[tuple[str, Callable[..., Response]]]:
    for path in stated.keys() & own.keys():
        leave_out(stated[path], Unfit(f"there is a page at {path} already"))
    found = dict(load_all((place for path, place in stated.items() if path not in own), FunctionType))
    return [(path, found[stated[path]]) for path in stated if path not in own and stated[path] in found]


def make_app(
    context: PageContext, secrets: Secrets, address: Address, on_used: OnUsed = lambda: None
) -> ASGIApp:
    """The whole page, for browsers that know `secrets`; `on_used` is called when a link has been used."""
    handlers = ErrorHandlers(context.templates)
    app = Starlette(
        routes=[
            *(Route(path, rendered_once(page)) for path, page in all_pages()),
            *(Route(path, form_endpoint(action), methods=["POST"]) for path, action in all_actions()),
            *all_routes(),
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
    # Each address has one spelling: the router would lead from `/d/x/` to `/d/x` also who has no access.
    app.router.redirect_slashes = False
    app.state.context = context
    # Around everything, so that error pages have the security headers as well.
    error_page = make_error_page(context.templates)
    return AccessControl(app, secrets=secrets, address=address, error_page=error_page, on_used=on_used)


class Door(Protocol):
    """An entrance for programs beside the page, with an access control of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...
    def close(self) -> None:
        """End what would go on for long, so that the server can end."""


def with_doors(page: ASGIApp, doors: Mapping[str, Door]) -> ASGIApp:
    """The page, and doors by the beginning of their paths."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = f"{scope.get('path', '')}/"
        begin = next((begin for begin in doors if path.startswith(f"{begin}/")), None)
        await (page if begin is None else doors[begin])(scope, receive, send)

    return answer


def rendered_once(page: Page) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that renders a page once for all browsers that ask for it at the same time, as they do after news.

    A rendering is for those alone who asked before it began, so that none is older than its request.
    """
    running: dict[_Asked, asyncio.Task[Response]] = {}
    waiting: dict[_Asked, asyncio.Task[Response]] = {}

    async def render(asked: _Asked, request: Request) -> Response:
        if (before := running.get(asked)) is not None:
            await asyncio.wait([before])
        mine = running[asked] = waiting.pop(asked)
        try:
            return await run_in_threadpool(page, request)
        finally:
            if running.get(asked) is mine:
                del running[asked]

    async def endpoint(request: Request) -> Response:
        # All that a page depends on beside the database and the disk; the cookies say how diffs are shown.
        asked = request.scope["path"], request.url.query, request.headers.get("cookie", "")
        if asked not in waiting:
            waiting[asked] = asyncio.create_task(render(asked, request))
        # One browser that goes away does not end it for the others.
        rendered = await asyncio.shield(waiting[asked])
        # What sends an answer writes into its headers, such as those of compression.
        mine = copy(rendered)
        mine.raw_headers = [*rendered.raw_headers]
        return mine

    return endpoint


_Asked: TypeAlias = tuple[str, str, str]
