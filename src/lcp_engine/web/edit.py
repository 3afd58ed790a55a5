"""Edit the params of a held job: what is wrong stands beside its field, and the diff comes before the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.api.records import Job
from lcp_engine.changes.preview import Previews
from lcp_engine.core.job_states import State
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.diff_excerpt import drawn
from lcp_engine.web.error_pages import status_of, told
from lcp_engine.web.form_post import Form, number
from lcp_engine.web.held_kind import wish_of
from lcp_engine.web.jobs import is_editable
from lcp_engine.web.param_fields import Field, fields_of, read_fields
from lcp_engine.web.redirects import to_job
from lcp_engine.web.shown_token import MARK, mark_of, read_mark

UNFIT = "the params do not fit; nothing was decided"


def edit_form(request: Request) -> Response:
    """The params as they are."""
    desk = desk_of(request)
    job = _job(desk, request)
    return _show(desk, job, _fields(desk, job))


def edit(desk: Desk, request: Request, form: Form) -> Response:
    """Show what the edited params would change, or approve the job with them. What does not fit is kept."""
    job = _job(desk, request)
    typed = [
        replace(field, text=form.verbatim(f"param.{index}")) for index, field in enumerate(_fields(desk, job))
    ]
    params, fields, is_sound = read_fields(desk.engine.workers[job.kind].params, typed)
    shown = read_mark(form)
    if not is_sound:
        return _show(desk, job, fields, status=422, problem=UNFIT, shown=form.text(MARK))
    if form.text("decision") != "approve":
        return _show(desk, job, fields, edited=params, shown=form.text(MARK))
    try:
        desk.engine.approve(job.id, params=params, shown=shown)
    except LcpError as refused:
        return _show(desk, job, fields, status=status_of(refused), problem=told(refused), edited=params)
    return to_job(job.id, "approved", form)


def _job(desk: Desk, request: Request) -> Job:
    """The job of the address. Raises `WRONG_STATE` unless it waits for a yes, `TOO_LARGE` for one that fits no form."""
    job = desk.engine.job(number(request.path_params["job"]))
    if job.state != State.HELD:
        message = f"job {job.id} has to be held to be edited; it is {job.state}"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    if wish_of(job.json, desk.engine.workers) != "yes":
        message = f"job {job.id} has to wait for a yes to be edited; nothing executes {job.kind}, or it is a question"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    if not is_editable(job):
        message = f"the params of job {job.id} do not fit a form; `lcp approve {job.id} --edit` takes them"
        raise LcpError(ErrorCode.TOO_LARGE, message)
    return job


def _fields(desk: Desk, job: Job) -> list[Field]:
    return fields_of(desk.engine.workers[job.kind].params, job.params)


def _show(
    desk: Desk, job: Job, fields: Sequence[Field], *, status: int = 200, problem: str = "",
    edited: dict[str, JsonValue] | None = None, shown: str = "",
) -> Response:  # fmt: skip
    """The form. A decision binds to the file as it was when the form was opened, or shown anew after a refusal."""
    with Previews(desk.engine.site) as previews:
        preview = None if edited is None else previews.of(job.mission_id, job.kind, edited)
    return desk.page(
        "edit.html",
        status=status,
        job=job.json,
        mission=desk.engine.mission(job.mission_id).json,
        fields=fields,
        problem=problem,
        diff=None if preview is None else drawn(preview.diff),
        shown=shown or mark_of(desk.engine.look_over([job.json])[job.id].sight),
    )
