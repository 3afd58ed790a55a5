"""The kind `read_file`: read a text file."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from lcp_engine.core.kinds import KindRole
from lcp_engine.errors import ErrorCode, Failed, LcpError, system_advice
from lcp_engine.sandbox.reading.read_text import Text, read_lines, read_part, read_whole
from lcp_engine.sandbox.root import Opened
from lcp_engine.workers.base import Context, Example, Hold, Worker
from lcp_engine.workers.params import EncodingText, FileParams, Result, requested_paths, without


class ReadFileParams(FileParams):
    """`offset` lines are skipped, then at most `limit` are read; with either, a file may be larger than the cap.

    `offset_bytes` and `limit_bytes` do the same by bytes, for files with long lines.
    """

    offset: int | None = Field(default=None, ge=0, description="How many lines to skip; 0 is the start.")
    limit: int | None = Field(default=None, ge=1, description="How many lines to read at most.")
    offset_bytes: int | None = Field(
        default=None, ge=0, description="How many bytes to skip, where lines are long."
    )
    limit_bytes: int | None = Field(default=None, ge=1, description="How many bytes to read at most.")
    encoding: EncodingText | None = Field(
        default=None, description="The encoding of the file; by default it is detected."
    )

    @model_validator(mode="after")
    def _has_one_part(self) -> ReadFileParams:
        lines, by = (self.offset, self.limit), (self.offset_bytes, self.limit_bytes)
        if lines != (None, None) and by != (None, None):
            raise PydanticCustomError("two_parts", "a part is given by lines and by bytes, one is needed")
        return self


class ReadFileResult(Result):
    """`content` is exactly what the file's bytes decode to with `encoding`; `total` counts the lines of the file.

    U+FFFD stands for each of `bad_bytes`; `next_offset_bytes` is the `offset_bytes` of the rest.
    """

    action: Literal["read_file_result"] = "read_file_result"
    path: str
    content: str
    encoding: str
    size_bytes: int
    truncated: bool = Field(default=False, exclude_if=lambda value: not value)
    total: int | None = Field(default=None, exclude_if=lambda value: value is None)
    next_offset_bytes: int | None = Field(default=None, exclude_if=lambda value: value is None)
    encoding_is_guess: bool = Field(default=False, exclude_if=lambda value: not value)
    bad_bytes: int = Field(default=0, exclude_if=lambda value: not value)

    def whole(self) -> dict[str, JsonValue]:
        rest = bool(self.content) and not self.content.endswith("\n")
        lines = self.content.count("\n") + rest if self.total is None and not self.truncated else self.total
        return {**super().whole(), "total": lines}


def execute(params: ReadFileParams, context: Context) -> ReadFileResult | Hold | Failed:
    """Reads the file if policy allows both the path that was named and the path that was opened."""
    try:
        return _read(params, context)
    except LcpError as error:
        return error.failed
    except OSError as error:
        name = params.path or params.rel_path
        return Failed(
            ErrorCode.FILE_SYSTEM,
            f"{name!r}: {error.strerror or error}",
            {"errno": error.errno},
            system_advice(error),
        )


def _read(params: ReadFileParams, context: Context) -> ReadFileResult | Hold | Failed:
    place = params.place(context.names)
    if (refused := context.judge(place.path)) is not None:
        return refused
    if place.is_directory:
        return Failed(
            ErrorCode.NOT_A_FILE, f"{place.shown or '.'!r} is named as a directory, a file is needed"
        )
    opened = context.root.open_place(place)
    # A ".." behind a link leads elsewhere than its text says: then the result names the path as the job did.
    shown = place.shown if opened.path == place.path or not place.climbs else place.named
    try:
        if opened.path != place.path and (refused := context.judge(opened.path)) is not None:
            return refused
        text = _part(params, opened, context.caps.read_bytes, shown)
    finally:
        os.close(opened.descriptor)
    return _result(shown, text)


def _part(params: ReadFileParams, opened: Opened, cap: int, shown: str) -> Text:
    encoding = params.encoding or ""
    if params.offset_bytes is not None or params.limit_bytes is not None:
        limit = cap if params.limit_bytes is None else min(params.limit_bytes, cap)
        return read_part(
            opened.descriptor,
            params.offset_bytes or 0,
            limit,
            size=opened.size,
            path=shown,
            encoding=encoding,
        )
    if params.offset is None and params.limit is None:
        return read_whole(opened.descriptor, opened.size, cap, shown, encoding)
    return read_lines(
        opened.descriptor, params.offset or 0, params.limit, cap=cap, path=shown, encoding=encoding
    )


def _result(shown: str, text: Text) -> ReadFileResult:
    return ReadFileResult(
        path=shown,
        content=text.content,
        encoding=text.encoding,
        size_bytes=text.size_bytes,
        truncated=text.is_part,
        total=text.total,
        next_offset_bytes=text.next_byte,
        encoding_is_guess=text.is_guess,
        bad_bytes=text.bad_bytes,
    )


WORKER = Worker(
    kind="read_file",
    params=ReadFileParams,
    brief_params=without(ReadFileParams, "offset_bytes", "limit_bytes", "encoding"),
    result=ReadFileResult,
    execute=execute,
    description="Read a text file, or some of its lines.",
    has_effects=False,
    paths=requested_paths,
    role=KindRole.READS,
    shows="content",
    examples=(
        Example(
            params={"root": ".", "rel_path": "src/main.py"},
            result={"path": "src/main.py", "content": "print('hello')\n"},
            files={"src/main.py": "print('hello')\n"},
        ),
    ),
    confined="lcp_engine.workers.read_file:WORKER",
)
