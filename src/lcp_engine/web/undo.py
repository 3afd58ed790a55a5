"""Undo the file changes of a mission or a job: first a dry run, then the undo itself."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.core.kinds import UNDO
from lcp_engine.core.safe_text import json_line
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.inbox import Diff, Undo
from lcp_engine.web.changes import wants_split
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.diff_view import excerpt
from lcp_engine.web.error_pages import status_of
from lcp_engine.web.forms import Form, number

OUTDATED = "what would be undone has changed since this page was loaded; nothing was done"


def undo_form(request: Request) -> Response:
    """What an undo would do now."""
    return _show(context_of(request), request)


def undo(context: PageContext, request: Request, form: Form) -> Response:
    """Undo exactly what the form's page showed, or nothing."""
    try:
        planned = _undo(context, request, dry_run=True)
        if form.text("shown") != fingerprint_of(planned, _diffs(context, request)):
            raise LcpError(ErrorCode.CONFLICT, OUTDATED, advice=GENERAL)
        done = _undo(context, request)
    except LcpError as refused:
        return _show(context, request, refused)
    if done.job_id is None:
        return _show(context, request)
    return RedirectResponse(f"/jobs/{done.job_id}?note=undone", 303)


def _show(context: PageContext, request: Request, refused: LcpError | None = None) -> Response:
    mission_id, job_id = _target(request)
    job = None if job_id is None else context.engine.job(job_id)
    mission = context.engine.mission(mission_id if job is None else job.mission_id)
    planned: Undo | None = None
    diffs: list[Diff] = []
    try:
        planned, diffs = _undo(context, request, dry_run=True), _diffs(context, request)
    except LcpError as error:
        refused = error
    return context.render(
        "undo.html",
        status=200 if refused is None else status_of(refused),
        mission=mission.json,
        job=None if job is None else job.json,
        is_redo=job is not None and job.kind == UNDO,
        planned=planned,
        diffs=[excerpt(diff, is_split=wants_split(request)) for diff in diffs],
        is_split=wants_split(request),
        shown="" if planned is None else fingerprint_of(planned, diffs),
        problem="" if refused is None else str(refused),
    )


def _undo(context: PageContext, request: Request, *, dry_run: bool = False) -> Undo:
    mission_id, job_id = _target(request)
    return context.engine.undo(None if job_id else mission_id, job_id=job_id, dry_run=dry_run)


def _target(request: Request) -> tuple[int, int | None]:
    """The ids of the mission and, in the address of a job, of that job."""
    given = request.path_params
    return (0, number(given["job"])) if "job" in given else (number(given["mission"]), None)


def _diffs(context: PageContext, request: Request) -> list[Diff]:
    mission_id, job_id = _target(request)
    return context.engine.undo_diffs(None if job_id else mission_id, job_id=job_id)


def fingerprint_of(planned: Undo, diffs: Sequence[Diff]) -> str:
    """A hash of everything that would be done, to which an undo is bound."""
    files: list[JsonValue] = [*planned.files, *(diff.json for diff in diffs)]
    return hashlib.sha256(json_line(files).encode()).hexdigest()
