"""Take back what a mission or a job did to files: first what would be done, then the deed."""

from __future__ import annotations

import hashlib

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.changes.restore import UNDO
from lcp_engine.core.safe_text import json_line
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.undo import Undo
from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.error_pages import status_of
from lcp_engine.web.form_post import Form, number

NEWER = "what would be undone is not what this page showed; nothing was done"


def undo_form(request: Request) -> Response:
    """What an undo would do now, checked and not done."""
    return _show(desk_of(request), request)


def undo(desk: Desk, request: Request, form: Form) -> Response:
    """Undo what the form's page showed, or nothing."""
    try:
        planned = _undo(desk, request, dry_run=True)
        if form.text("shown") != _mark(planned):
            raise LcpError(ErrorCode.CONFLICT, NEWER)
        done = _undo(desk, request)
    except LcpError as refused:
        return _show(desk, request, refused)
    if done.job_id is None:
        return _show(desk, request)
    return RedirectResponse(f"/jobs/{done.job_id}?note=undone", 303)


def _show(desk: Desk, request: Request, refused: LcpError | None = None) -> Response:
    mission_id, job_id = _wish(request)
    job = None if job_id is None else desk.engine.job(job_id)
    mission = desk.engine.mission(mission_id if job is None else job.mission_id)
    planned: Undo | None = None
    try:
        planned = _undo(desk, request, dry_run=True)
    except LcpError as error:
        refused = error
    return desk.page(
        "undo.html",
        status=200 if refused is None else status_of(refused),
        mission=mission.json,
        job=None if job is None else job.json,
        is_redo=job is not None and job.kind == UNDO.kind,
        planned=planned,
        shown="" if planned is None else _mark(planned),
        problem="" if refused is None else str(refused),
    )


def _undo(desk: Desk, request: Request, *, dry_run: bool = False) -> Undo:
    mission_id, job_id = _wish(request)
    return desk.engine.undo(None if job_id else mission_id, job_id=job_id, dry_run=dry_run)


def _wish(request: Request) -> tuple[int, int | None]:
    """The mission, or the job, that the address names."""
    given = request.path_params
    return (0, number(given["job"])) if "job" in given else (number(given["mission"]), None)


def _mark(planned: Undo) -> str:
    """What stands in the form of all that would be done."""
    files: list[JsonValue] = [*planned.files]
    return hashlib.sha256(json_line(files).encode()).hexdigest()
