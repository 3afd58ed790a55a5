"""Show which rule decided about a job."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.web.context import desk_of
from lcp_engine.web.form_post import number


def policy(request: Request) -> Response:
    """Every rule that is looked at for a job, in order, and the one that decides."""
    desk = desk_of(request)
    job = desk.engine.job(number(request.path_params["job"]))
    return desk.page(
        "policy.html",
        job=job.json,
        mission=desk.engine.mission(job.mission_id).json,
        explained=desk.engine.explain_policy(job.id),
    )
