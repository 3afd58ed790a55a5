"""The kind `make_directory`: make a directory, with those above it."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from lcp_engine.core.kinds import KindRole
from lcp_engine.errors import Failed
from lcp_engine.sandbox.paths import Place
from lcp_engine.workers.base import Applied, Context, Example, FileEffect, Hold, Worker
from lcp_engine.workers.params import FileParams, PathText, Result, requested_paths


class MakeDirectoryParams(FileParams):
    """The directory to make. Those above it are made as well; one that is there already stays as it is."""

    rel_path: PathText | None = Field(default=None, description="The directory, relative to root.")
    path: PathText | None = Field(
        default=None, description="The directory, absolute or relative to root. Or rel_path."
    )


class MakeDirectoryResult(Result):
    """`created` is false for a directory that was there already: then nothing has changed."""

    action: Literal["make_directory_result"] = "make_directory_result"
    path: str
    created: bool


def execute(
    params: MakeDirectoryParams, context: Context
) -> MakeDirectoryResult | FileEffect | Hold | Failed:
    """Checks the path without opening the directory, and returns the change for the runner to apply."""
    place = context.to_change(params.place, is_directory=True)
    if not isinstance(place, Place):
        return place
    if not place.path:
        return MakeDirectoryResult(path=place.shown or ".", created=False)
    return FileEffect(f"{place.path}/", "", "make", partial(_result, place.shown))


def _result(shown: str, applied: Applied) -> MakeDirectoryResult:
    return MakeDirectoryResult(path=shown, created=applied.is_new)


WORKER = Worker(
    kind="make_directory",
    params=MakeDirectoryParams,
    result=MakeDirectoryResult,
    execute=execute,
    description="Make a directory, with those above it.",
    writes=True,
    role=KindRole.MAKES,
    paths=requested_paths,
    preview=execute,
    reads_files=False,
    examples=(
        Example(params={"root": ".", "rel_path": "docs/api"}, result={"path": "docs/api", "created": True}),
    ),
    judged_as=("write_file",),
    confined="lcp_engine.workers.make_directory:WORKER",
)
