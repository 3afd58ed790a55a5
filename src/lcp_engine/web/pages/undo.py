"""Undo the file changes of a mission or a job: first a dry run, then the undo itself."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.core.kinds import UNDO
from lcp_engine.errors import LcpError
from lcp_engine.inbox import Diff, Undo
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.diff_view import excerpt
from lcp_engine.web.forms import Form, number
from lcp_engine.web.pages.changes import wants_split


def undo_form(request: Request) -> Response:
    """Show what an undo would do now."""
    return _show(context_of(request), request)


def undo(context: PageContext, request: Request, form: Form) -> Response:
    """Undo exactly what the form's page showed, or nothing."""
    try:
        mission_id, job_id = _target(request)
        done = context.engine.undo(mission_id, job_id=job_id, shown=form.text("shown"))
    except LcpError as refused:
        return _show(context, request, refused)
    if done.job_id is None:
        return _show(context, request)
    return RedirectResponse(f"/jobs/{done.job_id}?note=undone", 303)


def _show(context: PageContext, request: Request, refused: LcpError | None = None) -> Response:
    mission_id, job_id = _target(request)
    job = None if job_id is None else context.engine.job(job_id)
    mission = context.engine.mission(job.mission_id if job is not None else mission_id or 0)
    planned: Undo | None = None
    diffs: list[Diff] = []
    try:
        planned = context.engine.undo(mission_id, job_id=job_id, dry_run=True)
        diffs = context.engine.undo_diffs(mission_id, job_id=job_id, shown=planned.shown)
    except LcpError as error:
        refused = error
    return context.render(
        "undo.html",
        status=200 if refused is None else refused.status,
        mission=mission.json,
        job=None if job is None else job.json,
        is_redo=job is not None and job.kind == UNDO,
        planned=planned,
        diffs=[excerpt(diff, is_split=wants_split(request)) for diff in diffs],
        is_split=wants_split(request),
        shown="" if planned is None else planned.shown,
        problem="" if refused is None else str(refused),
    )


def _target(request: Request) -> tuple[int | None, int | None]:
    """The id of the mission or, in the address of a job, of that job."""
    given = request.path_params
    return (None, number(given["job"])) if "job" in given else (number(given["mission"]), None)
