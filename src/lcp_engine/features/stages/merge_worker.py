"""The kind `merge`: bring what a mission did in its stage into the root; made by the engine alone (R28)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from lcp_engine.core.kinds import MERGE as KIND
from lcp_engine.core.kinds import KindRole
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.workers.base import ExecutedBy, Worker, refuse_to_execute
from lcp_engine.workers.params import ContentText, Params, PathText, Result


def _no_nul(text: str) -> str:
    if (at := text.find("\0")) >= 0:
        raise PydanticCustomError("nul", "holds U+0000 at {at}, which no text has", {"at": at})
    return text


HunkName = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}-[0-9a-f]{8}$")]
"""The name of a `Hunk`."""
EditedText = Annotated[ContentText, AfterValidator(_no_nul)]


class MergeParams(Params):
    """What a person takes: all files of the stage, or `only` some, by their paths relative to the root.

    Of those in `hunks` only some hunks, by name; those in `edits` as the person has edited them.
    """

    only: Annotated[list[PathText], Field(min_length=1)] | None = Field(
        default=None, description="The files to take; all by default."
    )
    hunks: dict[PathText, Annotated[list[HunkName], Field(min_length=1)]] = Field(
        default={}, description="By file, the names of the hunks to take; all by default."
    )
    edits: dict[PathText, EditedText] = Field(
        default={}, description="By file, the text that it gets instead of what the stage has."
    )

    @model_validator(mode="after")
    def _is_of_taken_files(self) -> MergeParams:
        if (both := next((path for path in self.hunks if path in self.edits), None)) is not None:
            raise PydanticCustomError("hunks_and_edit", "{path} has both hunks and an edit", {"path": both})
        parts = (*self.hunks, *self.edits)
        if (left := next((path for path in parts if not self.takes(path)), None)) is not None:
            raise PydanticCustomError("not_taken", "{path} is not in only", {"path": left})
        return self

    def takes(self, path: str) -> bool:
        """True if the file is to be merged, perhaps in part."""
        return self.only is None or path in self.only

    def takes_whole(self, path: str) -> bool:
        """True if the file is to be merged as the stage has it."""
        return self.takes(path) and path not in self.hunks and path not in self.edits

    def unknown(self, paths: Iterable[str]) -> str | None:
        """A file that is to be taken and is not there."""
        known = set(paths)
        named = (*(self.only or ()), *self.hunks, *self.edits)
        return next((path for path in named if path not in known), None)


def params_taking(
    files: Sequence[str],
    taken: Mapping[str, Sequence[str] | None],
    edits: Mapping[str, str] | None = None,
) -> dict[str, JsonValue]:
    """The params of a merge of these `files` that takes some of them: each whole (None), or the hunks that are named.

    An edit of a file that is taken replaces what else is taken of it. Raises `INVALID_ARGUMENT` if nothing is taken.
    """
    if not taken:
        raise nothing_taken("file")
    if (empty := next((path for path, names in taken.items() if names == []), None)) is not None:
        raise nothing_taken(f"hunk of {empty!r}")
    edited = {path: text for path, text in (edits or {}).items() if path in taken}
    hunks: dict[str, JsonValue] = {
        path: [*names] for path, names in taken.items() if names is not None and path not in edited
    }
    only = [] if set(files) <= set(taken) else [path for path in files if path in taken]
    parts: dict[str, JsonValue] = {"only": [*only], "hunks": hunks, "edits": {**edited}}
    return {name: part for name, part in parts.items() if part}


def nothing_taken(what: str) -> LcpError:
    """The error for a choice that is empty."""
    message = f"no {what} is chosen; nothing was approved"
    return LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="Choose what to take, or reject the merge.")


class MergedFile(Result):
    """A file that was merged: what was done, and for which jobs of the mission.

    `left_out` are the hunks that a person did not take; `edited`: it has the text of that person instead. `twin` is
    what the root has under the same name in another Unicode form.
    """

    path: str
    change: str
    jobs: list[int]
    left_out: list[str] = Field(default=[])
    edited: bool = False
    twin: str | None = Field(default=None, exclude_if=lambda value: value is None)


class MergeResult(Result):
    """The files that were changed in the root, and those that a person left out."""

    action: Literal["merge_result"] = "merge_result"
    summary: str
    files: list[MergedFile]
    left_out: list[str] = Field(default=[])


MERGE = Worker(
    kind=KIND,
    params=MergeParams,
    result=MergeResult,
    execute=refuse_to_execute("a merge is carried out by the engine, not by a worker"),
    description="Bring what a mission did in its stage into the root; made by the engine alone.",
    writes=True,
    role=KindRole.OTHER,
    timeout=3600.0,
    max_attempts=3,
    executed_by=ExecutedBy.ENGINE,
).for_any_params()
"""The kind whose jobs `features/stages/merge.py` carries out; no planner can request it."""
