"""Review what a job changes, file by file and part by part: their list, boxes of a merge, what was viewed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine import Job
from lcp_engine.api.inbox import ViewedFiles, mark_of
from lcp_engine.api.user import user_name
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.stages.merge_form import UNDRAWN, OfferedFile, offered_files
from lcp_engine.inbox import Diff, Gap
from lcp_engine.stages import MergeParams
from lcp_engine.web.context import PageContext
from lcp_engine.web.diff_view import (
    CHARACTERS_IN_PART,
    LINES_IN_PART,
    Excerpt,
    ExcerptLine,
    anchor_of,
    excerpt,
    heads_in,
    lines_with,
    part,
    unchanged,
)
from lcp_engine.web.forms import Form, number
from lcp_engine.web.images import may_be_image

_PLACE = re.compile(r"file-[0-9a-f]+")
MOST_COMMENTS = 400
"""Hunks that can be commented on; with more, the form would have too many fields."""
LONGEST_NAMES = 100_000
"""Characters of all names of those fields."""
_COMMENT = re.compile(r"comment\.([BL]?)([0-9]+)\.file-[0-9a-f]+\.(.+)")
"""The name of a comment: the line (L), a removed one (B) or the first one of a hunk, and the path as it is shown."""
_LINES = {"": "from line {}", "L": "line {}", "B": "removed line {}"}
_COMMENT_FORM = Markup(
    '<details class="comment"><summary>Comment</summary><textarea name="{}" form="approve" rows="2" '
    'maxlength="4000" aria-label="{}"></textarea></details>'
)
MOST_FOUND = 200
"""Lines that a search in a diff lists."""
LINES_BEFORE = 20
"""Lines that are shown before one to which a search leads."""
_UNDRAWN = Markup('<input type="hidden" name="{}" value="{} {}" form="approve">')
LINES_MORE = 20
"""Unchanged lines that a request shows above or below a hunk, or all that are left if they are not twice as many."""
_GAP_LINK = Markup('<a href="{}&amp;gap={}">{} Show {} lines</a>')
_GAP = re.compile(r"(up|down)\.([0-9]{1,6})\.([0-9]{1,7})\.([0-9]{1,7})")
"""Which lines of which gap are asked for, and how many were shown at its beginning and its end."""
LINES_OF_HEAD = 10
"""Lines that take as long to draw as the head of a file."""
_BOX = Markup(
    '<label class="tick"><input type="checkbox" name="{}" value="{}"{} form="approve" aria-label="{}">'
    '<span class="unseen">{} </span></label>'
)


@dataclass(frozen=True)
class ReviewedFile:
    """A file of a review: what is shown of it, and its boxes, if a person may take it without the others."""

    diff: Excerpt
    state: str
    """`new`, `removed` or `changed`; empty for what is not shown as text."""
    hunks: int
    box: Markup
    around: Sequence[tuple[Markup, Markup]]
    """Its box, and a field for a comment, of each hunk."""
    gaps: Sequence[Markup]
    """Links to the lines that are left out above each hunk, and behind the last."""
    has_parts: bool
    mark: str
    """Names what is shown of the file."""
    was_seen: bool | None
    """Whether all of it had been on the screen when this person marked it as viewed; None if they did not."""
    is_drawn: bool
    unread: int
    """Lines of it that are not on the page yet."""
    undrawn: Markup
    """Says which of its hunks are not on the page yet, if they have boxes."""
    may_be_image: bool
    """True if it may be shown as images."""

    @property
    def has_lines(self) -> bool:
        return bool(self.diff.lines or self.diff.omitted)

    @property
    def is_viewed(self) -> bool:
        return self.was_seen is not None


@dataclass(frozen=True)
class FileReview:
    """The files of a job."""

    files: Sequence[ReviewedFile]
    may_mark: bool
    """Whether a person can mark them as viewed."""
    hides_space: bool
    """Whether lines that differ in white space alone are left out."""

    @property
    def offered(self) -> str:
        """The choice that the form has: `hunks`, `files`, or none."""
        if any(file.has_parts for file in self.files):
            return "hunks"
        return "files" if any(file.box for file in self.files) else ""

    @property
    def viewed(self) -> int:
        return sum(file.is_viewed for file in self.files)

    @property
    def added(self) -> int:
        return sum(file.diff.added for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.diff.removed for file in self.files)


def review_of(
    context: PageContext, job: Job, diffs: Sequence[Diff], *, has_choice: bool = False, is_shown: bool = False,
    is_split: bool = False, hides_space: bool = False, wanted: tuple[str, int] | None = None,
) -> FileReview:  # fmt: skip
    """The files that a job changes, as many as a page has at first; or, of the one with a mark, a later part.

    If a held job can be approved where it `is_shown`, there are boxes where it `has_choice`, and fields for comments.
    """
    may_choose = is_shown and has_choice
    boxes = offered_files(diffs, MergeParams.model_validate(job.params)) if may_choose else []
    is_held = job.state == State.HELD
    viewed = _viewed_files(context, job.mission_id).marks() if is_held and len(diffs) > 1 else {}
    names = [len(diff.path) for diff in diffs for _ in range(heads_in(diff))]
    may_comment = is_shown and len(names) <= MOST_COMMENTS and sum(names) <= LONGEST_NAMES
    drawn_files = _drawn(diffs, wanted, partial(part, is_split=is_split, hides_space=hides_space))
    # Of what was rejected or cancelled nothing was written, and nothing is kept.
    job_id = None if job.state in (State.REJECTED, State.CANCELLED) else job.id
    files = [
        _reviewed(diff, drawn, offered, viewed, may_comment=may_comment, job_id=job_id)
        for diff, drawn, offered in zip_longest(diffs, drawn_files, boxes)
        if wanted is None or drawn is not None
    ]
    if wanted is None and any(file.unread for file in files):
        context.keep_compared(job.id, diffs, has_choice=has_choice)
    return FileReview(files, may_mark=is_held and len(diffs) > 1, hides_space=hides_space)


def _drawn(
    diffs: Sequence[Diff], wanted: tuple[str, int] | None, draw: Callable[..., Excerpt]
) -> Iterator[Excerpt | None]:
    """Draw whole files, as long as a page has room, and the first one as far as it has; None for the others."""
    lines, characters = LINES_IN_PART, CHARACTERS_IN_PART
    for at, diff in enumerate(diffs):
        if wanted is not None:
            yield draw(diff, wanted[1]) if mark_of(diff) == wanted[0] else None
            continue
        drawn = None
        if lines > 0:
            drawn = draw(diff, lines=lines, characters=characters, least=0)
            lines -= len(drawn.lines) + LINES_OF_HEAD
            characters -= sum(len(line.text) for line in drawn.lines)
            if at and drawn.omitted:
                drawn, lines = None, 0
        yield drawn


def lines_in_gap(
    context: PageContext, job: Job, diff: Diff, asked: str, *, is_split: bool
) -> tuple[Markup, Excerpt, Markup]:
    """Unchanged lines of a gap of a diff, with links to those that are still left out above and below them.

    Raises `NOT_FOUND` for a gap that it does not have, `CONFLICT` if the file has changed, and like `Engine.contents`.
    """
    found, gaps = _GAP.fullmatch(asked), diff.gaps
    number = int(found[2]) if found else len(gaps)
    if found is None or number >= len(gaps):
        message = f"the diff of {one_line(diff.path)!r} leaves out no such lines"
        raise LcpError(ErrorCode.NOT_FOUND, message, advice=GENERAL)
    lines = context.engine.contents(job.id, diff.path).lines(diff)
    if lines is None:
        raise changed_since(job.id)
    gap, above, below = gaps[number], int(found[3]), int(found[4])
    count = len(lines) - gap.new + 1 if gap.count is None else gap.count
    first, last = min(above, count), max(min(above, count), count - below)
    left = more if (more := last - first - LINES_MORE) > LINES_MORE else 0
    if left:
        first, last = (last - LINES_MORE, last) if found[1] == "up" else (first, first + LINES_MORE)
    start = Gap(gap.old + first, gap.new + first, None)
    drawn = unchanged(diff, start, lines[start.new - 1 : gap.new + last - 1], is_split=is_split)
    link = partial(_gap_links, _address(job.id, mark_of(diff)), number, left, is_last=gap.count is None)
    if found[1] == "up":
        return link(above, count - first), drawn, Markup()
    return Markup(), drawn, link(last, below)


def _gap_links(
    address: str, number: int, left: int | None, above: int = 0, below: int = 0, *, is_last: bool
) -> Markup:
    """Links to the next of the lines that are `left` out of a gap; so many are shown `above` and `below` them."""
    if left == 0:
        return Markup()
    ways = {"down": "↓", "up": "↑"}
    if is_last:
        del ways["up"]
    elif number == 0:
        del ways["down"]
    few = left is not None and left <= 2 * LINES_MORE
    links = [
        _GAP_LINK.format(address, f"{way}.{number}.{above}.{below}", arrow, left if few else LINES_MORE)
        for way, arrow in ([(min(ways), "↕")] if few else ways.items())
    ]
    rest = "" if left is None or few else f" of {left:,}"
    return Markup('<samp class="gap">{}{}</samp>\n').format(Markup(" ").join(links), rest)


def _address(job_id: int, mark: str) -> str:
    """The page of a file of a job."""
    return f"/jobs/{job_id}/diff?file={mark}"


def changed_since(job_id: int) -> LcpError:
    """The error for a part of a file that is no longer what was shown of it."""
    message = f"what was shown of that file has changed since; open job {job_id} again"
    return LcpError(ErrorCode.CONFLICT, message, advice=GENERAL)


@dataclass(frozen=True)
class FoundLine:
    """A line of a diff that has what was searched for."""

    path: str
    line: ExcerptLine
    address: str
    """A page with the line and those around it."""


def find_lines(job: Job, diffs: Sequence[Diff], text: str) -> list[FoundLine]:
    """The lines of all files of a job that have a text: one more than a page lists, if there are more."""
    found: list[FoundLine] = []
    for diff in diffs:
        for at, line in lines_with(diff, text, MOST_FOUND + 1 - len(found)):
            first = max(0, at - LINES_BEFORE) if at >= LINES_IN_PART // 2 else 0
            page = f"{_address(job.id, mark_of(diff))}&from={first}"
            found.append(FoundLine(diff.path, line, f"{page}#{anchor_of(diff.path)}-{line.place}"))
    return found


def words_in(form: Form) -> str:
    """Words of a form for the planner, then its comments, each with its file and line."""
    comments = [
        f"{place[3]}, {_LINES[place[1]].format(place[2])}: {text}"
        for name in form.fields
        if (place := _COMMENT.fullmatch(name)) and (text := form.text(name))
    ]
    return "\n".join(filter(None, [form.text("back_words"), *comments]))


def mark_viewed(context: PageContext, request: Request, form: Form) -> Response:
    """Mark a file of a held job as viewed, or no longer as such, and return to the one behind it."""
    job = context.engine.job(number(request.path_params["job"]))
    files = _viewed_files(context, job.mission_id)
    if mark := form.text("viewed"):
        files.add(mark, was_seen=form.text("seen") == "yes")
    else:
        files.remove(form.text("unviewed"))
    place = request.query_params.get("next", "")
    return RedirectResponse(f"/jobs/{job.id}{f'#{place}' if _PLACE.fullmatch(place) else ''}", 303)


def _viewed_files(context: PageContext, mission_id: int) -> ViewedFiles:
    return ViewedFiles(context.engine.instance, mission_id, user_name())


def _reviewed(
    diff: Diff, drawn: Excerpt | None, offered: OfferedFile | None, viewed: Mapping[str, bool], *, may_comment: bool,
    job_id: int | None,
) -> ReviewedFile:  # fmt: skip
    path, heads = one_line(diff.path), heads_in(diff)
    is_drawn = drawn is not None
    shown = excerpt(diff, 0) if drawn is None else drawn
    before, starts = heads_in(diff, shown.first), shown.starts
    box, hunks, undrawn = Markup(), list[Markup](), Markup()
    if offered is not None:
        box = _box("take", offered.value, offered.is_taken, f"take {path}", "take")
        behind = before + len(starts)
        hunks = [
            _box(
                "hunk",
                one.value,
                one.is_taken,
                f"hunk {one.hunk.number} of {path}",
                f"hunk {one.hunk.number}",
            )
            for one in offered.hunks[before:behind]
        ]
        if behind < len(offered.hunks):
            undrawn = _UNDRAWN.format(UNDRAWN, behind, offered.value)
    comments = [
        _COMMENT_FORM.format(f"comment.{line}.{shown.anchor}.{path}", f"comment on {path} from line {line}")
        for line in (starts if may_comment else ())
    ]
    left = shown.omitted - (heads - before - len(starts))
    mark, gaps = mark_of(diff), list[Markup]()
    if shown.has_places and job_id is not None:
        # The gap behind the last hunk comes with its last line.
        until = before + len(starts) + (not shown.omitted)
        gaps = [
            _gap_links(_address(job_id, mark), number, gap.count, is_last=gap.count is None)
            for number, gap in enumerate(diff.gaps[:until])
        ][before:]
    return ReviewedFile(
        shown,
        _state_of(diff),
        heads,
        box,
        [*zip_longest(hunks, comments, fillvalue=Markup())],
        gaps,
        bool(offered and offered.hunks),
        mark,
        viewed.get(mark),
        is_drawn,
        left or (0 if is_drawn else 1),
        undrawn,
        job_id is not None and may_be_image(diff),
    )


def _box(name: str, value: str, is_ticked: bool, label: str, words: str) -> Markup:
    return _BOX.format(name, value, Markup(" checked") if is_ticked else "", label, words)


def _state_of(diff: Diff) -> str:
    if not diff.lines:
        return ""
    names = {"--- /dev/null": "new", "+++ /dev/null": "removed"}
    return next((names[line] for line in diff.lines[:2] if line in names), "changed")
