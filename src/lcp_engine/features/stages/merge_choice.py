"""Choose what to take of a merge: files and hunks by option, or one after the other at the terminal, and edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from lcp_engine.cli.commands.changes import show_diffs
from lcp_engine.cli.console.editor import Draft
from lcp_engine.cli.console.terminal import Choice, choose, page, print_legend, print_line, read_line
from lcp_engine.core.safe_text import one_line, sentence, shortened
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.stages import params_taking

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lcp_engine.api.engine import Engine
    from lcp_engine.inbox import Diff, Sight

    Params = dict[str, JsonValue]

_HUNK = (
    Choice("yes", ", take it"),
    Choice("no", ", leave it out"),
    Choice("all", " others of the file, too"),
    Choice("drop", " it and the others of the file"),
    Choice("edit", " the file"),
    Choice("rest", " of the merge, too"),
    Choice("finish", ", leave out the rest"),
    Choice("quit", ", choose nothing"),
)
_FILE = tuple(choice for choice in _HUNK if choice.word not in ("all", "drop"))


def approve_part(
    engine: Engine,
    job_id: int,
    only: Sequence[str],
    edited: Sequence[str],
    *,
    shown: Sight | None,
    by: str | None,
) -> bool:
    """Approve a merge of which `only` names what is taken, `PATH` or `PATH#2,4`; files of `edited` are taken, too,
    after the person has edited them.

    Raises `INVALID_ARGUMENT` for what is not in it, and for an edit that did not work; what was edited until then is
    kept in files that the error names.
    """
    files = engine.look(job_id).files
    if not files:
        option = "--only" if only else "--edit-file"
        advice = f"`lcp diff {job_id}` shows what it would change."
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{option}: job {job_id} is not a merge", advice=advice)
    by_path = {diff.path: diff for diff in files}
    taken: dict[str, list[str] | None] = {} if only else dict.fromkeys(by_path)
    for stated in only:
        path, names = _read(by_path, stated, job_id)
        before = taken.get(path, [])
        taken[path] = None if names is None or before is None else [*dict.fromkeys([*before, *names])]
    for path in edited:
        if path not in by_path:
            raise _unknown(f"--edit-file: {path!r}", by_path, path, job_id)
        taken[path] = None
    drafts = {path: _draft(engine.merged_text(job_id, path), path) for path in edited}
    try:
        edits = {path: draft.text for path, draft in drafts.items() if draft.edit() != draft.given}
        if edited and not edits:
            raise LcpError(
                ErrorCode.INVALID_PARAMS,
                "what was edited is unchanged; nothing was approved",
                advice="Edit it again, or decide on the job as it is.",
            )
        done = engine.approve(job_id, params=params_taking([*by_path], taken, edits), shown=shown, by=by)
    except LcpError as refused:
        for draft in drafts.values():
            draft.leave()
            refused = draft.kept_after(refused)
        raise refused from None
    for draft in drafts.values():
        draft.discard()
    return done


def _read(by_path: Mapping[str, Diff], stated: str, job_id: int) -> tuple[str, list[str] | None]:
    """The file that is named, and the names of its hunks; None for the whole file. Raises `INVALID_ARGUMENT`."""
    if stated in by_path:
        return stated, None
    path, _, numbers = stated.rpartition("#")
    if path not in by_path:
        raise _unknown(f"--only: {stated!r}", by_path, stated, job_id)
    hunks = by_path[path].hunks
    words = [word.strip() for word in numbers.split(",")]
    wrong = [
        word for word in words if not (word.isascii() and word.isdigit() and 1 <= int(word) <= len(hunks))
    ]
    if wrong:
        has = f"its hunks are 1 to {len(hunks)}" if hunks else "it has none, and is taken whole or left out"
        message = f"--only: {path!r} has no hunk {shortened(wrong[0], 20)!r}; {has}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=f"`lcp diff {job_id}` numbers them.")
    return path, [hunks[int(word) - 1].name for word in words]


def _unknown(what: str, by_path: Mapping[str, Diff], path: str, job_id: int) -> LcpError:
    message = f"{what} is not a file of the merge, job {job_id}; {nearest(path, [*by_path])}"
    advice = f"`lcp diff {job_id}` shows what it would change."
    return LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=advice)


@dataclass
class MergeChoice:
    """Choice of what a person at the terminal takes of a held merge so far; everything, until they choose."""

    engine: Engine
    job_id: int
    taken: dict[str, list[str] | None] | None = None
    edits: dict[str, str] = field(default_factory=dict)

    def params(self, files: Sequence[Diff]) -> Params | None:
        """The params to approve the merge with; None for those that it has."""
        if self.taken is None and not self.edits:
            return None
        paths = [diff.path for diff in files]
        return params_taking(paths, dict.fromkeys(paths) if self.taken is None else self.taken, self.edits)

    def edit(self, files: Sequence[Diff]) -> bool:
        """Ask for a file, and let the person edit it. Raises `LcpError`, and `Closed` at the question."""
        if not files:
            return False
        asked = "  which file? its number or path (empty: none): " if len(files) > 1 else ""
        said = read_line(asked) if asked else "1"
        found = [diff.path for number, diff in enumerate(files, 1) if said in (str(number), diff.path)]
        if not found:
            print_line(
                f"  {one_line(shortened(said, 60))!r} is not a file of the merge"
                if said
                else "  no file is edited"
            )
            return False
        return self._edit_file(found[0])

    def _edit_file(self, path: str) -> bool:
        before = self.edits.get(path)
        if before is None:
            before = self.engine.merged_text(self.job_id, path)
        text = _edited(before, path)
        if text is None:
            print_line(f"  {one_line(path)} is unchanged")
            return False
        self.edits[path] = text
        if self.taken is not None:
            self.taken[path] = None
        return True

    def walk(self, files: Sequence[Diff]) -> bool:
        """Ask about one hunk after the other, and about files without hunks as a whole; False if nothing was chosen.

        Raises `Closed` if the person leaves.
        """
        print_legend(_HUNK)
        taken: dict[str, list[str] | None] = {}
        for number, diff in enumerate(files, 1):
            answer = self._ask_about(diff, f"{number} of {len(files)}", taken)
            if answer == "quit":
                return False
            if answer == "rest":
                taken |= dict.fromkeys(rest.path for rest in files[number:])
            if answer in ("rest", "finish"):
                break
        if not taken:
            print_line("  nothing was chosen; n rejects the merge")
            return False
        self.taken = taken
        return True

    def _ask_about(self, diff: Diff, place: str, taken: dict[str, list[str] | None]) -> str:
        """Ask about one file; the last answer."""
        parts = [*_parts(diff)]
        names: list[str] = []
        answer = "yes"
        for number, (name, shown) in enumerate(parts, 1):
            if answer not in ("all", "drop", "rest", "finish"):
                page(partial(show_diffs, diffs=[shown]))
                what = f"hunk {number} of {len(parts)}" if len(parts) > 1 else "this file"
                asked = f"{one_line(diff.path)} ({place}): take {what}?"
                answer = choose(asked, _HUNK if len(parts) > 1 else _FILE)
            if answer == "quit":
                return answer
            if answer == "edit":
                if not self._try_to_edit(diff.path):
                    return self._ask_about(diff, place, taken)
                taken[diff.path] = None
                return answer
            if answer in ("yes", "all", "rest"):
                names.append(name)
        if names:
            taken[diff.path] = diff.taking(names)
        return answer

    def _try_to_edit(self, path: str) -> bool:
        try:
            return self._edit_file(path)
        except LcpError as refused:
            print_line(f"  {sentence(str(refused))}")
            return False


def _parts(diff: Diff) -> Iterator[tuple[str, Diff]]:
    """Parts of a file to ask about: each hunk, by name, or the file as a whole."""
    if not diff.parts:
        yield "", diff
    for number, hunk in enumerate(diff.parts):
        head = diff.lines[:2] if number == 0 else ()
        yield hunk.name, replace(diff, lines=(*head, *hunk.lines), note=diff.note if number == 0 else None)


def _edited(before: str, path: str) -> str | None:
    """Text as the person has edited it; None if it is the same. Raises `LcpError` if the editor did not work."""
    draft = _draft(before, path)
    try:
        text = draft.edit()
    except LcpError as refused:
        draft.leave()
        raise draft.kept_after(refused) from None
    draft.discard()
    return None if text == before else text


def _draft(text: str, path: str) -> Draft:
    return Draft(text, path.rpartition("/")[2])
