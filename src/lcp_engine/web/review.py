"""Review what a held job would change, file by file: the list of its files, boxes of a merge, what was viewed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine import Diff, Job, Look, MergeParams
from lcp_engine.api.inbox import ViewedFiles, mark_of
from lcp_engine.api.user import user_name
from lcp_engine.core.safe_text import one_line
from lcp_engine.web.context import PageContext
from lcp_engine.web.diff_view import Excerpt
from lcp_engine.web.forms import Form, number
from lcp_engine.web.merge_form import OfferedFile, offered_files

_PLACE = re.compile(r"file-[0-9a-f]+")
MOST_COMMENTS = 400
"""Hunks that can be commented on; with more, the form would have too many fields."""
LONGEST_NAMES = 100_000
"""Characters of all names of those fields."""
_COMMENT = re.compile(r"comment\.([0-9]+)\.(.+)")
"""The name of a comment, with the line and the path as it is shown."""
_COMMENT_FORM = Markup(
    '<details class="comment"><summary>Comment</summary><textarea name="{}" form="approve" rows="2" '
    'maxlength="4000" aria-label="{}"></textarea></details>'
)
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
    has_parts: bool
    mark: str
    """Names what is shown of the file."""
    was_seen: bool | None
    """Whether all of it had been on the screen when this person marked it as viewed; None if they did not."""

    @property
    def is_viewed(self) -> bool:
        return self.was_seen is not None


@dataclass(frozen=True)
class FileReview:
    """The files of a held job."""

    files: Sequence[ReviewedFile]

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
    context: PageContext, job: Job, look: Look, parts: Sequence[Excerpt], *, is_shown: bool
) -> FileReview:
    """The files that a held job would change, of which a page shows these parts; boxes only if it shows all."""
    may_choose = is_shown and look.files
    boxes = offered_files(look.files, MergeParams.model_validate(job.params)) if may_choose else []
    viewed = _viewed_files(context, job.mission_id).marks() if len(look.diffs) > 1 else {}
    names = [len(part.path) for part in parts for _ in part.starts]
    may_comment = is_shown and len(names) <= MOST_COMMENTS and sum(names) <= LONGEST_NAMES
    return FileReview([*_reviewed(look.diffs, parts, boxes, viewed, may_comment=may_comment)])


def words_in(form: Form) -> str:
    """Words of a form for the planner, then its comments, each with its file and line."""
    comments = [
        f"{place[2]}, from line {place[1]}: {text}"
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
    diffs: Sequence[Diff], parts: Sequence[Excerpt], boxes: Sequence[OfferedFile], viewed: Mapping[str, bool],
    *, may_comment: bool,
) -> Iterator[ReviewedFile]:  # fmt: skip
    for diff, part, offered in zip_longest(diffs, parts, boxes):
        path, starts = one_line(diff.path), part.starts
        box, hunks = Markup(), list[Markup]()
        if offered is not None:
            box = _box("take", offered.value, offered.is_taken, f"take {path}", "take")
            hunks = [
                _box("hunk", one.value, one.is_taken, f"hunk {at} of {path}", f"hunk {at}")
                for at, one in enumerate(offered.hunks, 1)
            ]
        comments = [
            _COMMENT_FORM.format(f"comment.{line}.{path}", f"comment on {path} from line {line}")
            for line in (starts if may_comment else ())
        ]
        around = [*zip_longest(hunks, comments, fillvalue=Markup())]
        mark = mark_of(diff)
        yield ReviewedFile(
            part,
            _state_of(diff),
            len(starts),
            box,
            around,
            bool(offered and offered.hunks),
            mark,
            viewed.get(mark),
        )


def _box(name: str, value: str, is_ticked: bool, label: str, words: str) -> Markup:
    return _BOX.format(name, value, Markup(" checked") if is_ticked else "", label, words)


def _state_of(diff: Diff) -> str:
    if not diff.lines:
        return ""
    names = {"--- /dev/null": "new", "+++ /dev/null": "removed"}
    return next((names[line] for line in diff.lines[:2] if line in names), "changed")
