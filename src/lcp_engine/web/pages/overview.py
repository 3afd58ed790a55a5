"""Activity, runners, schedules and roots of a database, and what it holds, for people and for programs that watch it.

Schedules are launched and removed here.
"""

from __future__ import annotations

from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lcp_engine.features.activity.charts import chart
from lcp_engine.web.access import WATCHED
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import Form, to_mission

MOST_ROOTS = 50


def overview(request: Request) -> Response:
    """All of it on one page: each part is short."""
    context = context_of(request)
    return context.render(
        "overview.html",
        chart=chart(context.engine.instance, request.query_params.get("over", "")),
        runners=context.runners(),
        schedules=[schedule.json for schedule in context.engine.schedules()],
        roots=context.queries.roots(limit=MOST_ROOTS),
        held=context.queries.overview(),
        note=request.query_params.get("note"),
    )


def launch_scheduled(context: PageContext, request: Request, form: Form) -> Response:
    """Launch the mission of a schedule now; its next due time stays."""
    return to_mission(context.engine.launch_scheduled(form.text("name")).id, "launched")


def remove_schedule(context: PageContext, request: Request, form: Form) -> Response:
    """Remove a schedule; missions that it launched go on."""
    context.engine.remove_schedule(form.text("name"))
    return RedirectResponse("/overview?note=removed", 303)


async def watched(request: Request) -> Response:
    """Health and figures, for which the silence of the database is waited a few seconds."""
    from lcp_engine.features.telemetry.health import Watch  # which states these routes

    context = context_of(request)
    watch = context.single(Watch, partial(Watch, context.engine.instance))
    answer = await run_in_threadpool(watch.answer, request.scope["path"])
    if answer is None:
        raise HTTPException(404)
    return Response(answer.text, answer.status, media_type=answer.content_type)


WATCHED_ROUTES = tuple(Route(path, watched) for path in WATCHED)
