"""The kind `merge`: bring what a mission did in its stage into the root; made by the engine alone (R28)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from lcp_engine.core.kinds import MERGE as KIND
from lcp_engine.core.kinds import KindRole
from lcp_engine.workers.base import ExecutedBy, Worker, refuse_to_execute
from lcp_engine.workers.params import Params, PathText, Result


class MergeParams(Params):
    """What a person takes: all files of the stage, or `only` some, by their paths relative to the root."""

    only: Annotated[list[PathText], Field(min_length=1)] | None = Field(
        default=None, description="The files to take; all by default."
    )

    def takes(self, path: str) -> bool:
        """Whether the file is to be merged."""
        return self.only is None or path in self.only

    def unknown(self, paths: Iterable[str]) -> str | None:
        """A file that is to be taken and is not there."""
        known = set(paths)
        return next((path for path in self.only or () if path not in known), None)


class MergedFile(Result):
    """A file that was merged: what was done, and for which jobs of the mission."""

    path: str
    change: str
    jobs: list[int]


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
    judged_as=("write_file", "edit_file", "delete_file", "move_file", "make_directory"),
).for_any_params()
"""The kind whose jobs `changes/merge.py` carries out; no planner can request it."""
