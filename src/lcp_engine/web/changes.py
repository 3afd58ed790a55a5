"""Diffs: the files that a mission changed, and the whole diff of one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lcp_engine import Job
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import block, shortened
from lcp_engine.engine.reports.markdown import disk_note
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import cursor, number

FILES = 20
LINES_IN_LIST = 120
"""Lines of a diff on a page with other content; the rest is on a page of its own."""
LINES_ALONE = 2_000
LONGEST_LINE = 2_000
FOLDED_ABOVE = 30

_CSS_CLASSES: Mapping[str, str] = MappingProxyType({"+": "add", "-": "del", "@": "hunk", "\\": "mark"})


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
                "diff": excerpt(file.diff),
                "jobs": file.jobs,
                "fate": disk_note(file.disk),
                "disk": file.disk,
            }
            for file in files
        ],
        total=total,
        after=first,
        behind=first + FILES if first + FILES < total else None,
    )


def job_diff(request: Request) -> Response:
    """The diff of one job, with more lines than on the job's page."""
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    return context.render(
        "job_diff.html",
        job=job.json,
        mission=context.engine.mission(job.mission_id).json,
        diffs=[excerpt(diff, LINES_ALONE) for diff in _diffs(context, job)],
    )


def job_patch(request: Request) -> Response:
    """The whole diff of one job, as text, however long."""
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    lines = (
        diff.text or f"# {block(diff.path)}: {block(diff.note or '')}\n" for diff in _diffs(context, job)
    )
    return PlainTextResponse(block("".join(lines)))


@dataclass(frozen=True)
class ExcerptLine:
    """A line of a diff, sign first."""

    text: str
    css_class: str


@dataclass(frozen=True)
class Excerpt:
    """The part of a diff that a page shows; `omitted` lines are left out."""

    path: str
    note: str | None
    added: int
    removed: int
    lines: Sequence[ExcerptLine]
    omitted: int

    @property
    def is_long(self) -> bool:
        return len(self.lines) > FOLDED_ABOVE


def excerpt(diff: Diff, most: int = LINES_IN_LIST) -> Excerpt:
    """The first `most` lines of a diff without its two header lines. Pure."""
    body = diff.lines[2:]
    lines = [
        ExcerptLine(shortened(line, LONGEST_LINE), _CSS_CLASSES.get(line[:1], "same")) for line in body[:most]
    ]
    return Excerpt(diff.path, diff.note, diff.added, diff.removed, lines, max(0, len(body) - most))


def _diffs(context: PageContext, job: Job) -> list[Diff]:
    if job.state != State.HELD:
        return context.engine.diff(job.id)
    view = context.engine.look_over([job.json])[job.id]
    return [] if view.diff is None else [view.diff]
