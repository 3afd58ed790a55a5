"""Review what a held job would change, file by file: the list of its files, and the boxes of a merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from markupsafe import Markup

from lcp_engine import Diff, Job, Look, MergeParams
from lcp_engine.core.safe_text import one_line
from lcp_engine.web.diff_view import Excerpt
from lcp_engine.web.merge_form import OfferedFile, offered_files

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
    def added(self) -> int:
        return sum(file.diff.added for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.diff.removed for file in self.files)


def review_of(job: Job, look: Look, parts: Sequence[Excerpt], *, is_shown: bool) -> FileReview:
    """The files that a held job would change, of which a page shows these parts; boxes only if it shows all."""
    may_choose = is_shown and look.files
    boxes = offered_files(look.files, MergeParams.model_validate(job.params)) if may_choose else []
    return FileReview([*_reviewed(look.diffs, parts, boxes)])


def _reviewed(
    diffs: Sequence[Diff], parts: Sequence[Excerpt], boxes: Sequence[OfferedFile]
) -> Iterator[ReviewedFile]:
    for diff, part, offered in zip_longest(diffs, parts, boxes):
        path, heads = one_line(diff.path), sum(line.css_class == "hunk" for line in part.lines)
        if offered is None:
            yield ReviewedFile(part, _state_of(diff), heads, Markup(), ())
            continue
        hunks = [
            _box("hunk", one.value, one.is_taken, f"hunk {number} of {path}", f"hunk {number}")
            for number, one in enumerate(offered.hunks, 1)
        ]
        box = _box("take", offered.value, offered.is_taken, f"take {path}", "take")
        yield ReviewedFile(part, _state_of(diff), heads, box, hunks)


def _box(name: str, value: str, is_ticked: bool, label: str, words: str) -> Markup:
    return _BOX.format(name, value, Markup(" checked") if is_ticked else "", label, words)


def _state_of(diff: Diff) -> str:
    if not diff.lines:
        return ""
    names = {"--- /dev/null": "new", "+++ /dev/null": "removed"}
    return next((names[line] for line in diff.lines[:2] if line in names), "changed")
