"""Make what a person takes of a file of a merge: some of its hunks, or their own text. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lcp_engine.changes.unified_diff import diff_bytes, take_hunks
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.stages.merge_worker import MergeParams
from lcp_engine.sandbox.new_content import compose
from lcp_engine.sandbox.reading.encoding import BAD_BYTE, encoding_of
from lcp_engine.workers.base import WRITE_LESS


@dataclass(frozen=True)
class Part:
    """Content that a file gets instead of that of the stage; `left_out` are the headers of hunks that are not taken."""

    data: bytes
    left_out: tuple[str, ...] = ()
    is_edited: bool = False


def part_of(
    params: MergeParams, path: str, before: bytes | None, staged: bytes | None, cap: int
) -> Part | None:
    """Part that the person takes of a file that has `before` in the root and `staged` in the stage; None for all of it.

    Raises `CONFLICT` for a hunk that the file does not have, `INVALID_PARAMS` for a part of a file that has none, and
    `TOO_LARGE` for a text of more than `cap` bytes.
    """
    if path in params.edits:
        text = text_of(path, staged)
        data = staged if params.edits[path] == text else _edited(path, staged, params.edits[path])
        if len(data or b"") > cap:
            message = f"{path!r} would get {len(data or b''):,} bytes, at most {cap:,} are written at once"
            raise LcpError(ErrorCode.TOO_LARGE, message, advice=WRITE_LESS)
        return Part(data or b"", is_edited=True)
    if path not in params.hunks:
        return None
    hunks = () if path.endswith("/") else diff_bytes(path, before, staged).hunks
    if before is None or staged is None or not hunks:
        raise _without_hunks(path, before, staged)
    known = {hunk.name for hunk in hunks}
    if (gone := next((name for name in params.hunks[path] if name not in known), None)) is not None:
        message = f"{path!r} has no hunk {gone!r}: it has changed since, or was never shown so"
        raise LcpError(ErrorCode.CONFLICT, message, advice="Look at the diff of the merge again.")
    taken = set(params.hunks[path])
    left_out = tuple(hunk.header for hunk in hunks if hunk.name not in taken)
    return Part(take_hunks(before, staged, taken), left_out) if left_out else None


def _edited(path: str, staged: bytes | None, text: str) -> bytes:
    try:
        return compose(staged, text, "overwrite")
    except LcpError as error:
        advice = "Keep to ASCII in what you change, or take the file as it is and edit it yourself."
        raise LcpError(error.code, f"{path!r}: {error}", advice=advice) from error


def text_of(path: str, staged: bytes | None) -> str:
    """The text of a file in the stage, for a person to edit. Raises `INVALID_PARAMS` if it is not text."""
    encoding = None if staged is None or path.endswith("/") else encoding_of(staged)
    if staged is None or encoding is None:
        fact = "is removed" if staged is None else "is a directory" if path.endswith("/") else "is binary"
        message = f"{path!r} {fact}; there is no text to edit"
        raise LcpError(ErrorCode.INVALID_PARAMS, message, advice="Take it as it is, or leave it out.")
    return BAD_BYTE.sub("\ufffd", encoding.decode(staged))


def _without_hunks(path: str, before: bytes | None, staged: bytes | None) -> LcpError:
    if path.endswith("/"):
        fact = "is a directory"
    elif staged is None or before is None:
        fact = "is removed" if staged is None else "is new"
    else:
        fact = "does not change as text in one encoding" if before != staged else "does not change"
    message = f"{path!r} {fact}; it has no hunks, and is taken as a whole or left out"
    return LcpError(ErrorCode.INVALID_PARAMS, message, advice="Name the file without hunks.")
