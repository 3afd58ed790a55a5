"""Diffs: the files that a mission changed, and the whole diff of one job."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from lcp_engine import Job
from lcp_engine.api.inbox import mark_of
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import LcpError
from lcp_engine.features.reports.reports import disk_note
from lcp_engine.inbox import Diff, Look
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.diff_view import Excerpt, excerpt, shown_line
from lcp_engine.web.forms import Form, cursor, number, shown_value
from lcp_engine.web.images import Images, sides_of
from lcp_engine.web.pages.review import MOST_FOUND, changed_since, find_lines, lines_in_gap, review_of

FILES = 20
LONGEST_SOUGHT = 200
"""Characters of a text that is searched for in a diff."""
_SIDE_BY_SIDE = "split"
_WITHOUT_SPACE = "hidden"
_COOKIES = {"diff": "lcp-diff", "space": "lcp-space"}
"""The cookies that keep how this browser is shown diffs, by the field that chooses."""


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
    """The diff of one job, of which a held one can be approved there.

    With `file`, a part of what the mark names; with `find`, the lines that have a text.
    """
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    mark, first, is_split = (
        request.query_params.get("file"),
        cursor(request, "from") or 0,
        wants_split(request),
    )
    look = None
    if mark is not None:
        diffs, has_choice = _compared(context, job, mark)
    else:
        look = context.engine.look(job.id) if job.state == State.HELD else None
        diffs, has_choice = _diffs(context, job, look), False
    if mark is not None and (asked := request.query_params.get("gap")) is not None:
        diff = next(one for one in diffs if mark_of(one) == mark)
        return _page_of(context, request, job, gap=lines_in_gap(context, job, diff, asked, is_split=is_split))
    if text := request.query_params.get("find", "").strip()[:LONGEST_SOUGHT]:
        context.keep_compared(job.id, diffs, has_choice=bool(look and look.has_choice))
        return context.render(
            "job_diff.html",
            job=job.json,
            mission=context.engine.mission(job.mission_id).json,
            find=text,
            found=find_lines(job, diffs, text),
            most=MOST_FOUND,
        )
    is_part = "part" in request.query_params
    wanted = None if mark is None else (mark, first)
    review = review_of(
        context, job, diffs, has_choice=has_choice and is_part, is_shown=is_part and job.state == State.HELD,
        is_split=is_split, hides_space=hides_space(request), wanted=wanted,
    )  # fmt: skip
    return context.render(
        "part.html" if is_part else "job_diff.html",
        job=job.json,
        mission=context.engine.mission(job.mission_id).json,
        review=review,
        gap=None,
        images=None,
        find="",
        is_one=mark is not None,
        is_split=is_split,
        caveat="" if look is None else look.caveat,
        shown=shown_value(look.sight) if look is not None and diffs and look.is_whole else "",
    )


def job_images(request: Request) -> Response:
    """Both sides of a file of a job as images, or why they are not shown; with `side`, one of them itself."""
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    mark, side = (request.query_params.get(name, "") for name in ("file", "side"))
    diff = next(one for one in _compared(context, job, mark)[0] if mark_of(one) == mark)
    try:
        contents = context.engine.contents(job.id, diff.path)
    except LcpError as refused:
        return _page_of(context, request, job, images=Images(diff.path, mark, (), str(refused)))
    sides = sides_of(contents)
    if not side:
        return _page_of(context, request, job, images=Images(diff.path, mark, sides))
    wanted = [one for one in sides if one.name == side and one.digest == request.query_params.get("hash")]
    data = contents.before if side == "before" else contents.after
    if data is None or not wanted or wanted[0].image is None or wanted[0].fault:
        raise changed_since(job.id)
    # A browser that opens it as a document keeps it as a file.
    headers = {"Content-Disposition": "attachment"}
    return Response(data, media_type=wanted[0].image.media_type, headers=headers)


def _page_of(
    context: PageContext, request: Request, job: Job, *,
    gap: tuple[Markup, Excerpt, Markup] | None = None, images: Images | None = None,
) -> Response:  # fmt: skip
    """A part of a file, to be put into the page of its job, or as a page of its own."""
    return context.render(
        "part.html" if "part" in request.query_params else "job_part.html",
        job=job.json,
        mission=context.engine.mission(job.mission_id).json,
        gap=gap,
        images=images,
        review=None,
    )


def _compared(context: PageContext, job: Job, mark: str) -> tuple[Sequence[Diff], bool]:
    """The diffs of a job, one of which has this mark, and whether there is a choice. Raises `CONFLICT` if none has."""
    found = context.compared.get(job.id, ((), False))
    if not any(mark_of(diff) == mark for diff in found[0]):
        look = context.engine.look(job.id) if job.state == State.HELD else None
        found = _diffs(context, job, look), bool(look and look.has_choice)
        if not any(mark_of(diff) == mark for diff in found[0]):
            raise changed_since(job.id)
        context.keep_compared(job.id, found[0], has_choice=found[1])
    return found


def job_patch(request: Request) -> Response:
    """The whole diff of one job, as text, however long."""
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    look = context.engine.look(job.id) if job.state == State.HELD else None
    return PlainTextResponse("".join(_as_text(diff) for diff in _diffs(context, job, look)))


def wants_split(request: Request) -> bool:
    """True if this browser is shown the old and the new lines of a diff side by side, where it is wide enough."""
    return request.cookies.get(_COOKIES["diff"]) == _SIDE_BY_SIDE


def hides_space(request: Request) -> bool:
    """True if this browser is shown no lines that differ in white space alone, in reviews."""
    return request.cookies.get(_COOKIES["space"]) == _WITHOUT_SPACE


def choose_view(context: PageContext, request: Request, form: Form) -> Response:
    """Remember how this browser is shown diffs, and return to the page of the form."""
    # One slash: `//host` would lead to another host.
    response = RedirectResponse("/" + form.text("back").lstrip("/\\"), 303)
    for name, cookie in _COOKIES.items():
        if name in form.fields:
            chosen = text if (text := form.text(name)) in (_SIDE_BY_SIDE, _WITHOUT_SPACE) else "usual"
            response.set_cookie(cookie, chosen, max_age=365 * 86_400, httponly=True, samesite="strict")
    return response


def _as_text(diff: Diff) -> str:
    head = "".join(f"{line}\n" for line in diff.lines[:2])
    body = "".join(f"{shown_line(line)}\n" for line in diff.lines[2:])
    note = f"# {one_line(diff.path)}: {one_line(diff.note)}\n" if diff.note else ""
    return f"{note}{head}{body}"


def _diffs(context: PageContext, job: Job, look: Look | None) -> list[Diff]:
    """Changes that a held job would make, as it was looked at, or that another one has made."""
    if look is None:
        return context.engine.diff(job.id)
    return look.diffs
