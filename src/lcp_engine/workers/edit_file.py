"""The kind `edit_file`: replace a part of a text file."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lcp_engine.core.kinds import KindRole
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.sandbox.paths import Place
from lcp_engine.workers.base import WRITE_LESS, Applied, Context, Example, FileEffect, Hold, Worker
from lcp_engine.workers.params import ContentText, EncodingText, FileParams, Result, requested_paths, without


class EditFileParams(FileParams):
    """Replaces a text that is in the file once; all of the rest stays as it is."""

    old_text: Annotated[ContentText, Field(min_length=1)] = Field(
        description="Exactly as it is in the file, and only once."
    )
    new_text: ContentText = Field(description="What to put there.")
    replace_all: bool = Field(default=False, description="Replace it each time it is there.")
    encoding: EncodingText | None = Field(
        default=None, description="The encoding of the file; by default it is detected."
    )

    @model_validator(mode="after")
    def _changes_something(self) -> EditFileParams:
        if self.old_text == self.new_text:
            raise PydanticCustomError("no_change", "old_text and new_text are the same; nothing would change")
        return self


class EditFileResult(Result):
    """Hashes are SHA-256 in hex. Hashes and size are null for a file that may not be read without a person."""

    action: Literal["edit_file_result"] = "edit_file_result"
    path: str
    size_bytes: int | None
    sha256_before: str | None
    sha256_after: str | None


def execute(params: EditFileParams, context: Context) -> FileEffect | Hold | Failed:
    """Checks path and size without opening the file, and returns the change for the runner to apply."""
    place = context.to_change(params.place)
    if not isinstance(place, Place):
        return place
    size, cap = written_bytes(params), context.caps.write_bytes
    if size > cap:
        message = f"new_text for {place.shown!r} has {size} bytes, at most {cap} are written at once"
        return Failed(ErrorCode.TOO_LARGE, message, advice=WRITE_LESS)
    return FileEffect(
        place.path,
        params.new_text,
        "edit",
        partial(_result, place.shown),
        replaced=params.old_text,
        everywhere=params.replace_all,
        encoding=params.encoding or "",
    )


def written_bytes(params: EditFileParams) -> int:
    """What the job counts for `max_bytes_written`: its new text as UTF-8."""
    return len(params.new_text.encode())


def _result(shown: str, applied: Applied) -> EditFileResult:
    return EditFileResult(
        path=shown,
        size_bytes=applied.size_bytes if applied.is_told else None,
        sha256_before=applied.sha256_before,
        sha256_after=applied.sha256_after,
    )


WORKER = Worker(
    kind="edit_file",
    params=EditFileParams,
    brief_params=without(EditFileParams, "encoding"),
    result=EditFileResult,
    execute=execute,
    description="Replace a part of a text file.",
    writes=True,
    role=KindRole.EDITS,
    paths=requested_paths,
    written_bytes=written_bytes,
    preview=execute,
    reads_files=False,
    examples=(
        Example(
            params={"root": ".", "rel_path": "notes.txt", "old_text": "frist", "new_text": "first"},
            result={"path": "notes.txt", "size_bytes": 6},
            files={"notes.txt": "frist\n"},
        ),
    ),
    judged_as=("write_file",),
    denied_with=("read_file",),
    confined="lcp_engine.workers.edit_file:WORKER",
)
