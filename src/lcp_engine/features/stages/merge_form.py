"""Choose what to take of a merge in a form: files, hunks of files, and edits of their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine import Job
from lcp_engine.core.safe_text import hides_nothing, one_line
from lcp_engine.errors import LcpError
from lcp_engine.inbox import Diff, Hunk, Look
from lcp_engine.stages import MergeParams, params_taking
from lcp_engine.web.context import PageContext
from lcp_engine.web.diff_view import anchor_of, whole
from lcp_engine.web.error_pages import refusal_text
from lcp_engine.web.forms import SHOWN, Form, number, read_shown, shown_value, to_job
from lcp_engine.web.pages.ask_again import ask_again

MOST_BOXES = 1_500
"""Files and hunks that can be chosen in a browser; of a merge with more, files alone, or all of it."""
MOST_TEXTS = 20
LARGEST_TEXTS = 256 * 1024
"""Characters of all texts in a form: percent-encoded they are near the limit of a request."""
UNTYPABLE = "it has characters that a browser does not show or keep"
NO_ROOM = "there is no room for more texts; choose fewer files"
PREVIEWED = "previewed"
UNDRAWN = "undrawn"
"""The field that says how many hunks of a file the page has boxes for, if not for all."""
UNSEEN = "nothing was decided: what it does with this choice had not been shown; now it is shown below"
Params = dict[str, JsonValue]


@dataclass(frozen=True)
class OfferedHunk:
    """A hunk of a file with a box of its own."""

    hunk: Hunk
    value: str
    is_taken: bool


@dataclass(frozen=True)
class OfferedFile:
    """A file of a merge with its box, and those of its hunks if it has several."""

    value: str
    hunks: Sequence[OfferedHunk]
    is_taken: bool


def offered_files(files: Sequence[Diff], params: MergeParams) -> list[OfferedFile]:
    """The boxes for a merge, ticked for what its params take; none if there are too many."""
    if len(files) > MOST_BOXES:
        return []
    has_hunks = len(files) + sum(len(diff.hunks) for diff in files) <= MOST_BOXES
    return [_offered(diff, params, has_hunks=has_hunks) for diff in files]


def _offered(diff: Diff, params: MergeParams, *, has_hunks: bool) -> OfferedFile:
    path, named = diff.path, params.hunks.get(diff.path)
    hunks = [
        OfferedHunk(hunk, f"{hunk.name} {_value(path)}", named is None or hunk.name in named)
        for hunk in (diff.parts if has_hunks else ())
    ]
    return OfferedFile(_value(path), hunks, params.takes(path))


def _value(path: str) -> str:
    """A path as the value of a field; where a browser or the page would change it, the name of its place."""
    return path if one_line(path) == path else anchor_of(path)


def choice_in(form: Form, job: Job, look: Look, edits: dict[str, str] | None = None) -> Params | None:
    """The params of what was ticked; None for a job that offered no choice. Raises `INVALID_ARGUMENT` for nothing.

    Hunks that the page did not have yet are taken as the job's params say.
    """
    if "offered" not in form.fields:
        return None
    named: dict[str, list[str]] = {}
    stated = MergeParams.model_validate(job.params)
    paths = {_value(diff.path): diff.path for diff in look.files}
    undrawn = {paths.get(path, path): number(shown) for shown, path in map(_parts, form.texts(UNDRAWN))}
    for name, of_file in map(_parts, form.texts("hunk")):
        named.setdefault(paths.get(of_file, of_file), []).append(name)
    taken: dict[str, list[str] | None] = {paths.get(value, value): None for value in form.texts("take")}
    if form.text("offered") == "hunks":
        for diff in look.files:
            if diff.path in taken:
                shown, known = undrawn.get(diff.path, len(diff.parts)), stated.hunks.get(diff.path)
                rest = [one.name for one in diff.parts if one.number > shown]
                rest = [name for name in rest if known is None or name in known]
                taken[diff.path] = diff.taking([*named.get(diff.path, []), *rest])
    return params_taking([diff.path for diff in look.files], taken, edits)


def _parts(value: str) -> tuple[str, str]:
    """A value of a field as its words about a file, and the file."""
    said, _, of_file = value.partition(" ")
    return said, of_file


@dataclass(frozen=True)
class EditedFile:
    """A file of the form: its text, or why it is not edited here."""

    path: str
    text: str = ""
    problem: str = ""

    @property
    def value(self) -> str:
        return _value(self.path)

    @property
    def rows(self) -> int:
        """The height of its text area."""
        return min(30, self.text.count("\n") + 3)


def edit_merge(context: PageContext, request: Request, job: Job, form: Form) -> Response:
    """Show the chosen files as texts, then what the edits would change, or approve the merge with them."""
    engine = context.engine
    look, opened = engine.look(job.id), form.text(SHOWN)
    try:
        choice = choice_in(form, job, look)
        files = _files(context, job, look, {} if choice is None else choice, form)
        if form.text("decision") not in ("preview", "approve"):
            return _show(context, job, form, files, shown=opened)
        edits = {one.path: one.text for one in files if not one.problem}
        before = {path: engine.merged_text(job.id, path, params=choice or {}) for path in edits}
        changed = {path: text for path, text in edits.items() if text != before[path]}
        paths = [diff.path for diff in look.files]
        params = choice_in(form, job, look, changed) or params_taking(paths, dict.fromkeys(paths), changed)
        edited = engine.look(job.id, params=params)
        if form.text("decision") == "preview":
            return _show(context, job, form, files, shown=opened, edited=edited)
        previewed = read_shown(form, PREVIEWED)
        is_of_these = previewed is not None and previewed.fingerprint == edited.sight.fingerprint
        shown = previewed if is_of_these else read_shown(form)
        if shown is None:
            return _show(context, job, form, files, status=409, problem=UNSEEN, edited=edited)
        if not form.is_measured:
            return ask_again(context, request, form, {job.id: edited}, params)
        engine.approve(job.id, params=params, shown=shown)
    except LcpError as refused:
        files = [EditedFile(path, text) for path, text in _typed(form).items()]
        return _show(
            context, job, form, files, status=refused.status, problem=refusal_text(refused), shown=opened
        )
    return to_job(job.id, "approved", form)


def _typed(form: Form) -> dict[str, str]:
    texts = [text.replace("\r\n", "\n") for text in form.texts("edit_text")]
    return dict(zip(form.texts("edit_path"), texts, strict=False))


def _files(context: PageContext, job: Job, look: Look, choice: Params, form: Form) -> list[EditedFile]:
    """The files that are taken, with what was typed or else with the texts that the merge gives them."""
    typed, params = _typed(form), MergeParams.model_validate(choice)
    files: list[EditedFile] = []
    room = LARGEST_TEXTS
    for diff in look.files:
        if not params.takes(diff.path):
            continue
        if (value := _value(diff.path)) in typed:
            files.append(EditedFile(diff.path, typed[value]))
            continue
        if room < 0 or sum(not one.problem for one in files) >= MOST_TEXTS:
            files.append(EditedFile(diff.path, problem=NO_ROOM))
            continue
        try:
            text = context.engine.merged_text(job.id, diff.path, params=choice)
        except LcpError as refused:
            files.append(EditedFile(diff.path, problem=str(refused)))
            continue
        room -= len(text)
        # Browsers change line ends, and invisible characters cannot be seen or typed.
        problem = UNTYPABLE if "\r" in text or not hides_nothing(text) else "" if room >= 0 else NO_ROOM
        files.append(EditedFile(diff.path, "" if problem else text, problem))
    return files


def _show(
    context: PageContext, job: Job, form: Form, files: Sequence[EditedFile], *, status: int = 200,
    problem: str = "", shown: str = "", edited: Look | None = None,
) -> Response:  # fmt: skip
    return context.render(
        "edit_merge.html",
        status=status,
        job=job.json,
        mission=context.engine.mission(job.mission_id).json,
        files=files,
        problem=problem,
        offered=form.text("offered"),
        take=form.texts("take"),
        hunks=form.texts("hunk"),
        undrawn=form.texts(UNDRAWN),
        shown=shown,
        diffs=[] if edited is None else [whole(diff) for diff in edited.files],
        previewed="" if edited is None or not edited.is_whole else shown_value(edited.sight),
    )
