"""The kinds `write_file` and `rewrite_file`: create or change a file."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.sandbox.paths import Place
from lcp_engine.workers.base import WRITE_LESS, Applied, Context, Example, FileEffect, Hold, Worker
from lcp_engine.workers.params import ContentParams, Result, requested_paths, without


class WriteFileParams(ContentParams):
    """Replaces the file, or adds to its end; parent directories are made."""

    mode: Literal["overwrite", "append"] = Field(
        default="overwrite", description="Replace the file or add to its end."
    )


class RewriteFileParams(ContentParams):
    """Replaces the file; parent directories are made."""

    mode: Literal["overwrite"] = "overwrite"


class WriteFileResult(Result):
    """Hashes are SHA-256 in hex; `sha256_before` is null for a new file. Encodings are stated where they change.

    Hashes and size are null for a file that was there and may not be read without a person.
    """

    action: Literal["write_file_result"] = "write_file_result"
    path: str
    mode: Literal["overwrite", "append"]
    size_bytes: int | None
    sha256_before: str | None
    sha256_after: str | None
    created: bool
    encoding_before: str | None = Field(default=None, exclude_if=lambda value: value is None)
    encoding_after: str | None = Field(default=None, exclude_if=lambda value: value is None)


def execute(params: WriteFileParams | RewriteFileParams, context: Context) -> FileEffect | Hold | Failed:
    """Checks path and size without opening the file, and returns the change for the runner to apply."""
    place = context.to_change(params.place)
    if not isinstance(place, Place):
        return place
    size, cap = written_bytes(params), context.caps.write_bytes
    if size > cap:
        return Failed(
            ErrorCode.TOO_LARGE,
            f"{place.shown!r} would get {size} bytes, at most {cap} are written at once",
            advice=WRITE_LESS,
        )
    result = partial(_result, place.shown, params.mode)
    return FileEffect(place.path, params.text, params.mode, result, encoding=params.encoding or "")


def written_bytes(params: ContentParams) -> int:
    """What the job counts for `max_bytes_written`: its text as UTF-8."""
    return len(params.text.encode())


def _result(shown: str, mode: Literal["overwrite", "append"], applied: Applied) -> WriteFileResult:
    encoding_before, encoding_after = applied.encodings or (None, None)
    return WriteFileResult(
        path=shown,
        mode=mode,
        size_bytes=applied.size_bytes if applied.is_told else None,
        sha256_before=applied.sha256_before,
        sha256_after=applied.sha256_after,
        created=applied.is_new,
        encoding_before=encoding_before,
        encoding_after=encoding_after,
    )


WRITE_FILE = Worker(
    kind="write_file",
    params=WriteFileParams,
    brief_params=without(WriteFileParams, "encoding"),
    result=WriteFileResult,
    execute=execute,
    description="Create a file, replace it, or add to its end.",
    writes=True,
    paths=requested_paths,
    written_bytes=written_bytes,
    preview=execute,
    reads_files=False,
    examples=(
        Example(
            params={"root": ".", "rel_path": "notes.txt", "content": "second\n", "mode": "append"},
            result={"path": "notes.txt", "size_bytes": 13, "created": False},
            files={"notes.txt": "first\n"},
        ),
    ),
    confined="lcp_engine.workers.write_file:WRITE_FILE",
)
REWRITE_FILE = Worker(
    kind="rewrite_file",
    params=RewriteFileParams,
    brief_params=without(RewriteFileParams, "encoding"),
    result=WriteFileResult,
    execute=execute,
    description="Replace a whole file.",
    writes=True,
    paths=requested_paths,
    written_bytes=written_bytes,
    preview=execute,
    reads_files=False,
    examples=(
        Example(
            params={"root": ".", "rel_path": "docs/NOTES.md", "new_content": "# Notes\n"},
            result={"path": "docs/NOTES.md", "size_bytes": 8, "created": True},
        ),
    ),
    included_in="write_file",
    confined="lcp_engine.workers.write_file:REWRITE_FILE",
)
