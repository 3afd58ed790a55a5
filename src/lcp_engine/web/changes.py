"""Diffs: the files that a mission changed, and the whole diff of one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lcp_engine import Job
from lcp_engine.changes.show import Look
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import Shown, exact, one_line
from lcp_engine.engine.reports.markdown import disk_note
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import cursor, number, shown_value

FILES = 20
LINES_IN_LIST = 120
"""Lines of a diff on a page with other content; the whole is on a page of its own."""
CHARACTERS_IN_LIST = 20_000
"""Characters of those lines."""
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
    """The whole diff of one job, however long; a held job can be approved there."""
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    look = context.engine.look(job.id) if job.state == State.HELD else None
    diffs = _diffs(context, job, look)
    return context.render(
        "job_diff.html",
        job=job.json,
        mission=context.engine.mission(job.mission_id).json,
        diffs=[whole(diff) for diff in diffs],
        caveat="" if look is None else look.caveat,
        shown=shown_value(look.sight) if look is not None and diffs and look.is_whole else "",
    )


def job_patch(request: Request) -> Response:
    """The whole diff of one job, as text, however long."""
    context = context_of(request)
    job = context.engine.job(number(request.path_params["job"]))
    look = context.engine.look(job.id) if job.state == State.HELD else None
    return PlainTextResponse("".join(_as_text(diff) for diff in _diffs(context, job, look)))


@dataclass(frozen=True)
class ExcerptLine:
    """A line of a diff, sign first."""

    text: str
    css_class: str


@dataclass(frozen=True)
class Excerpt:
    """The part of a diff that a page shows; `omitted` lines are left out, and `cut` characters of the last one."""

    path: str
    note: str | None
    added: int
    removed: int
    lines: Sequence[ExcerptLine]
    omitted: int = 0
    cut: int = 0

    @property
    def is_long(self) -> bool:
        return len(self.lines) > FOLDED_ABOVE

    @property
    def is_whole(self) -> bool:
        return not (self.omitted or self.cut)


def whole(diff: Diff) -> Excerpt:
    """All lines of a diff without its two header lines. Pure."""
    return Excerpt(diff.path, diff.note, diff.added, diff.removed, [_line(line) for line in diff.lines[2:]])


def excerpt(diff: Diff, lines: int = LINES_IN_LIST, characters: int = CHARACTERS_IN_LIST) -> Excerpt:
    """Like `whole`, but at most so many lines and characters. Pure."""
    body = diff.lines[2:]
    shown: list[ExcerptLine] = []
    cut = 0
    for line in body[:lines]:
        if characters <= 0:
            break
        cut = max(0, len(line) - characters)
        shown.append(_line(line[:characters]))
        characters -= len(line)
    return Excerpt(diff.path, diff.note, diff.added, diff.removed, shown, len(body) - len(shown), cut)


def _line(line: str) -> ExcerptLine:
    """A line as it is shown: its sign, and its text to the last character."""
    return ExcerptLine(Shown(line[:1] + exact(line[1:])), _CSS_CLASSES.get(line[:1], "same"))


def _as_text(diff: Diff) -> str:
    head = "".join(f"{line}\n" for line in diff.lines[:2])
    body = "".join(f"{_line(line).text}\n" for line in diff.lines[2:])
    note = f"# {one_line(diff.path)}: {one_line(diff.note)}\n" if diff.note else ""
    return f"{note}{head}{body}"


def _diffs(context: PageContext, job: Job, look: Look | None) -> list[Diff]:
    """What a held job would change, as it was looked at, or what another one has changed."""
    if look is None:
        return context.engine.diff(job.id)
    return look.diffs
