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
from lcp_engine.api.user import user_name
from lcp_engine.api.viewed_files import ViewedFiles, mark_of
from lcp_engine.core.safe_text import one_line
from lcp_engine.web.context import PageContext
from lcp_engine.web.diff_view import Excerpt
from lcp_engine.web.forms import Form, number
from lcp_engine.web.merge_form import OfferedFile, offered_files

_PLACE = re.compile(r"file-[0-9a-f]+")
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
    hunk_boxes: Sequence[Markup]
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
        if any(file.hunk_boxes for file in self.files):
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
    return FileReview([*_reviewed(look.diffs, parts, boxes, viewed)])


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
    diffs: Sequence[Diff], parts: Sequence[Excerpt], boxes: Sequence[OfferedFile], viewed: Mapping[str, bool]
) -> Iterator[ReviewedFile]:
    for diff, part, offered in zip_longest(diffs, parts, boxes):
        path, heads = one_line(diff.path), sum(line.css_class == "hunk" for line in part.lines)
        box, hunks = Markup(), list[Markup]()
        if offered is not None:
            box = _box("take", offered.value, offered.is_taken, f"take {path}", "take")
            hunks = [
                _box("hunk", one.value, one.is_taken, f"hunk {at} of {path}", f"hunk {at}")
                for at, one in enumerate(offered.hunks, 1)
            ]
        mark = mark_of(diff)
        yield ReviewedFile(part, _state_of(diff), heads, box, hunks, mark, viewed.get(mark))


def _box(name: str, value: str, is_ticked: bool, label: str, words: str) -> Markup:
    return _BOX.format(name, value, Markup(" checked") if is_ticked else "", label, words)


def _state_of(diff: Diff) -> str:
    if not diff.lines:
        return ""
    names = {"--- /dev/null": "new", "+++ /dev/null": "removed"}
    return next((names[line] for line in diff.lines[:2] if line in names), "changed")
