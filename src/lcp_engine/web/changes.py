"""Show what was changed: the files of a mission, and the whole diff of a job."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lcp_engine.api.records import Job
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import block
from lcp_engine.engine.reports.markdown import fate
from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.diff_excerpt import ALONE, drawn, patch
from lcp_engine.web.form_post import number
from lcp_engine.web.missions import cursor

FILES = 20


def changed_files(request: Request) -> Response:
    """The files that a mission has changed, each from its first content to its last, and how they are now."""
    desk = desk_of(request)
    mission = desk.engine.mission(number(request.path_params["mission"]))
    first = cursor(request, "after") or 0
    files, total = desk.engine.changed_files(mission.id, first=first, most=FILES)
    return desk.page(
        "changes.html",
        mission=mission.json,
        tab="changes",
        files=[
            {
                "diff": drawn(file.diff),
                "jobs": file.jobs,
                "fate": fate({"disk": file.disk}),
                "disk": file.disk,
            }
            for file in files
        ],
        total=total,
        after=first,
        behind=first + FILES if first + FILES < total else None,
    )


def job_diff(request: Request) -> Response:
    """The diff of one job, longer than its page has it."""
    desk = desk_of(request)
    job = desk.engine.job(number(request.path_params["job"]))
    return desk.page(
        "job_diff.html",
        job=job.json,
        mission=desk.engine.mission(job.mission_id).json,
        diffs=[drawn(diff, ALONE) for diff in _diffs(desk, job)],
    )


def job_patch(request: Request) -> Response:
    """The whole diff of one job, as text."""
    desk = desk_of(request)
    job = desk.engine.job(number(request.path_params["job"]))
    return PlainTextResponse(block(patch(_diffs(desk, job))))


def _diffs(desk: Desk, job: Job) -> list[Diff]:
    if job.state != State.HELD:
        return desk.engine.diff(job.id)
    look = desk.engine.look_over([job.json])[job.id]
    return [] if look.diff is None else [look.diff]
