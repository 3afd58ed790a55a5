"""The kind `delete_file`: delete a file."""

from __future__ import annotations

from functools import partial
from typing import Literal

from lcp_engine.core.kinds import KindRole
from lcp_engine.errors import Failed
from lcp_engine.sandbox.paths import Place
from lcp_engine.workers.base import Applied, Context, Example, FileEffect, Hold, Worker
from lcp_engine.workers.params import FileParams, Result, requested_paths


class DeleteFileParams(FileParams):
    """The file to delete. Directories are not deleted, also not one that becomes empty."""


class DeleteFileResult(Result):
    """Facts about the deleted file: `sha256_before` is its SHA-256 in hex, `mode` its mode bits.

    The hash is null for a file that may not be read without a person.
    """

    action: Literal["delete_file_result"] = "delete_file_result"
    path: str
    sha256_before: str | None
    mode: int


def execute(params: DeleteFileParams, context: Context) -> FileEffect | Hold | Failed:
    """Checks the path without opening the file, and returns the change for the runner to apply."""
    place = context.to_change(params.place)
    if not isinstance(place, Place):
        return place
    return FileEffect(place.path, "", "delete", partial(_result, place.shown))


def _result(shown: str, applied: Applied) -> DeleteFileResult:
    assert applied.mode_before is not None
    return DeleteFileResult(path=shown, sha256_before=applied.sha256_before, mode=applied.mode_before)


WORKER = Worker(
    kind="delete_file",
    params=DeleteFileParams,
    result=DeleteFileResult,
    execute=execute,
    description="Delete a file.",
    writes=True,
    role=KindRole.DELETES,
    paths=requested_paths,
    preview=execute,
    reads_files=False,
    examples=(
        Example(
            params={"root": ".", "rel_path": "old.txt"},
            result={"path": "old.txt"},
            files={"old.txt": "old\n"},
        ),
    ),
    confined="lcp_engine.workers.delete_file:WORKER",
)
