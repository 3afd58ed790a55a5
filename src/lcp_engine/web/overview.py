"""Activity, runners, schedules and roots of a database, and what it holds; schedules are launched and removed here."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.features.activity.charts import chart
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
