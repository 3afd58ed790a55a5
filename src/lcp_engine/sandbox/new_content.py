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


def edit(current: bytes | None, old: str, new: str, *, everywhere: bool = False) -> bytes:
    """The whole file with `new` in the place of `old`. Its byte order mark, its encoding, and its line ends if all of
    them are CRLF, are kept.

    Raises `LcpError`: NO_SINGLE_MATCH unless `old` is in the file once (or, `everywhere`, at least once),
    PATH_NOT_FOUND without a file, BINARY for a binary one, INVALID_PARAMS if `new` cannot be encoded.
    """
    _check(new)
    if current is None:
        raise LcpError(ErrorCode.PATH_NOT_FOUND, "there is no file whose text could be replaced")
    encoding = encoding_of(current)
    if encoding is None:
        raise LcpError(ErrorCode.BINARY, "the file is binary, text can only be replaced in a text file")
    mark, codec = _mark(current, encoding)
    text = current[len(mark) :].decode(codec)
    if _ends_in_crlf_only(text):
        old, new = (_BARE_LINE_FEED.sub("\r\n", part) for part in (old, new))
    _check_matches(text, old, everywhere=everywhere)
    try:
        return mark + text.replace(old, new).encode(codec)
    except UnicodeEncodeError as error:
        raise LcpError(
            ErrorCode.INVALID_PARAMS, f"the file is {codec}, which has no {error.object[error.start]!r}"
        ) from error


_MOST_LINES = 8
"""Line numbers that a message names."""


def _check_matches(text: str, old: str, *, everywhere: bool) -> None:
    found = text.count(old)
    if found == 1 or (found and everywhere):
        return
    if found:
        lines = _numbers(_lines_of_matches(text, old), found)
        fact = f"is in the file {found} times, beginning in {lines}; once is expected"
        advice = "Give more of the text around the place that is meant, or set replace_all to replace each."
    else:
        fact = f"is not in the file{_near_miss(text, old)}"
        advice = "Read the file, and give the text exactly as it is there, with its white space."
    raise LcpError(ErrorCode.NO_SINGLE_MATCH, f"the text to replace {fact}", advice=advice)


def _lines_of_matches(text: str, old: str) -> list[int]:
    """The numbers of the lines in which the first matches begin."""
    lines, at, line = list[int](), 0, 1
    while len(lines) < _MOST_LINES and (match := text.find(old, at)) >= 0:
        line += text.count("\n", at, match)
        lines.append(line)
        line += old.count("\n")
        at = match + len(old)
    return lines


def _near_miss(text: str, old: str) -> str:
    """The lines that are the first line of `old`, apart from white space."""
    first = next((line.split() for line in old.splitlines() if line.strip()), None)
    if first is None:
        return ""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.split() == first]
    if not lines:
        return "; no line of the file is like its first line"
    found = _numbers(lines[:_MOST_LINES], len(lines))
    return f"; its first line is like {found}, so white space or what follows differs"


def _numbers(lines: list[int], count: int) -> str:
    """Says some of `count` line numbers."""
    left = count - len(lines)
    listed = ", ".join(map(str, lines)) + (f" and {left} more" if left else "")
    return f"{'line' if count == 1 else 'lines'} {listed}"


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
