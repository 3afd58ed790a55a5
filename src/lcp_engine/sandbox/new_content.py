"""Make the new bytes of a file from its current bytes and the text to write. Pure."""

from __future__ import annotations

import codecs
import re
from typing import Literal

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.read_text import encoding_of

_BARE_LINE_FEED = re.compile(r"(?<!\r)\n")


def compose(current: bytes | None, content: str, mode: Literal["overwrite", "append"]) -> bytes:
    """The whole new file. A new file is `content` in UTF-8; an existing one keeps its byte order mark, its encoding,
    and its line ends if all of them are CRLF.

    Raises `LcpError`: INVALID_PARAMS if `content` cannot be encoded, BINARY for an append to a binary file.
    """
    _check(content)
    if not current:
        return content.encode()
    encoding = encoding_of(current)
    if encoding is None:
        if mode == "append":
            raise LcpError(ErrorCode.BINARY, "the file is binary, text can only be appended to a text file")
        return content.encode()
    return _compose(current, content, mode, encoding)


def _check(content: str) -> None:
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise LcpError(
            ErrorCode.INVALID_PARAMS,
            f"content holds half a surrogate pair at {error.start}, which no file can hold",
        ) from error


def _compose(current: bytes, content: str, mode: Literal["overwrite", "append"], encoding: str) -> bytes:
    mark, codec = _mark(current, encoding)
    if _ends_in_crlf_only(current.decode(encoding)):
        content = _BARE_LINE_FEED.sub("\r\n", content)
    if mark:
        content = content.removeprefix("\ufeff")
    try:
        added = content.encode(codec)
    except UnicodeEncodeError as error:
        if mode == "overwrite":
            return content.encode()
        raise LcpError(
            ErrorCode.INVALID_PARAMS, f"the file is {codec}, which has no {content[error.start]!r} to append"
        ) from error
    return current + added if mode == "append" else mark + added


def _mark(current: bytes, encoding: str) -> tuple[bytes, str]:
    """The byte order mark that the file begins with, and the codec of what follows."""
    for mark, codec in (
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF8, "utf-8"),
    ):
        if current.startswith(mark):
            return mark, codec
    return b"", encoding


def _ends_in_crlf_only(text: str) -> bool:
    return "\r\n" in text and not _BARE_LINE_FEED.search(text)
