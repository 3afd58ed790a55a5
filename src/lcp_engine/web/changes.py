"""Diffs: the files that a mission changed, and the whole diff of one job."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from lcp_engine import Diff, Job, Look
from lcp_engine.api.reports import disk_note
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import one_line
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.diff_view import excerpt, shown_line, whole
from lcp_engine.web.forms import Form, cursor, number, shown_value

FILES = 20
_VIEW = "lcp-diff"
"""The cookie that keeps how this browser is shown diffs."""
_SIDE_BY_SIDE = "split"


def changed_files(request: Request) -> Response:
    """The files that a mission has changed, each from its first content to its last, compared with the disk."""
    context = context_of(request)
    mission = context.engine.mission(number(request.path_params["mission"]))
    first = cursor(request, "after") or 0
    files, total = context.engine.changed_files(mission.id, first=first, most=FILES)
    return context.render(
        "changes.html",
        mission=mission.json,
        tab="changes",
        files=[
            {
                "diff": excerpt(file.diff, is_split=wants_split(request)),
                "jobs": file.jobs,
                "fate": disk_note(file.disk),
                "disk": file.disk,
            }
            for file in files
        ],
        is_split=wants_split(request),
        total=total,
        after=first,
        behind=first + FILES if first + FILES < total else None,
    )


def job_diff(request: Request) -> Response:
    """The whole diff of one job, however long; a held job can be approved there."""
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    look = context.engine.look(job.id) if job.state == State.HELD else None
    diffs = _diffs(context, job, look)
    return context.render(
        "job_diff.html",
        job=job.json,
        mission=context.engine.mission(job.mission_id).json,
        diffs=[whole(diff, is_split=wants_split(request)) for diff in diffs],
        is_split=wants_split(request),
        caveat="" if look is None else look.caveat,
        shown=shown_value(look.sight) if look is not None and diffs and look.is_whole else "",
    )


def job_patch(request: Request) -> Response:
    """The whole diff of one job, as text, however long."""
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    look = context.engine.look(job.id) if job.state == State.HELD else None
    return PlainTextResponse("".join(_as_text(diff) for diff in _diffs(context, job, look)))


def wants_split(request: Request) -> bool:
    """True if this browser is shown the old and the new lines of a diff side by side, where it is wide enough."""
    return request.cookies.get(_VIEW) == _SIDE_BY_SIDE


def choose_view(context: PageContext, request: Request, form: Form) -> Response:
    """Remember how this browser is shown diffs, and return to the page of the form."""
    # One slash: `//host` would lead to another host.
    response = RedirectResponse("/" + form.text("back").lstrip("/\\"), 303)
    chosen = _SIDE_BY_SIDE if form.text("diff") == _SIDE_BY_SIDE else "unified"
    response.set_cookie(_VIEW, chosen, max_age=365 * 86_400, httponly=True, samesite="strict")
    return response


def _as_text(diff: Diff) -> str:
    head = "".join(f"{line}\n" for line in diff.lines[:2])
    body = "".join(f"{shown_line(line)}\n" for line in diff.lines[2:])
    note = f"# {one_line(diff.path)}: {one_line(diff.note)}\n" if diff.note else ""
    return f"{note}{head}{body}"


def _diffs(context: PageContext, job: Job, look: Look | None) -> list[Diff]:
    """What a held job would change, as it was looked at, or what another one has changed."""
    if look is None:
        return context.engine.diff(job.id)
    return look.diffs
