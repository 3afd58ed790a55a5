"""Read text files: their encoding, their lines, within a cap."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from dataclasses import dataclass

from lcp_engine.errors import ErrorCode, LcpError

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Text:
    """Text that was read: `content` is exactly what the bytes decode to with `encoding`.

    `total` is the number of lines of the whole file if some were left out, else None.
    """

    content: str
    encoding: str
    size_bytes: int
    total: int | None = None


def read_whole(descriptor: int, size: int, cap: int, path: str) -> Text:
    """All of an open file. Raises `LcpError` TOO_LARGE above `cap` bytes, BINARY if it is not text."""
    data = read_bytes(descriptor, size, cap, path)
    encoding = encoding_of(data)
    if encoding is None:
        raise _binary(path)
    return Text(data.decode(encoding), encoding, len(data))


def read_bytes(descriptor: int, size: int, cap: int | None, path: str) -> bytes:
    """All bytes of an open regular file, whose size was `size`; never more than `cap`."""
    if cap is not None and size > cap:
        raise _too_large(path, size, cap)
    # One byte more than its size: that detects a file that has grown, and finds the end without a second call.
    data = os.read(descriptor, size + 1)
    if len(data) == size:
        return data
    chunks, length = [data], len(data)
    while data:
        if cap is not None and length > cap:
            raise _too_large(path, length, cap)
        data = os.read(descriptor, _CHUNK)
        chunks.append(data)
        length += len(data)
    return b"".join(chunks)


def read_lines(descriptor: int, offset: int, limit: int | None, *, cap: int, path: str) -> Text:
    """Like `read_whole`, but `limit` lines after the first `offset`, and never more than `cap` bytes of them.

    A file of any size is read in chunks. Raises TOO_LARGE if the requested lines are above the cap.
    """
    for encoding in _candidates(descriptor, path):
        try:
            return _lines(descriptor, encoding, offset, limit, cap)
        except UnicodeDecodeError:
            continue
        except _AboveCap as above:
            raise _too_large(path, above.size, cap) from None
    raise _binary(path)


def encoding_of(data: bytes) -> str | None:
    """The codec that decodes `data` without loss: by byte order mark, else UTF-8, cp1252, latin-1; None for binary."""
    for encoding in _by_start(data):
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return None


def _by_start(data: bytes) -> tuple[str, ...]:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ("utf-16",)
    if data.startswith(codecs.BOM_UTF8):
        return ("utf-8-sig",)
    return () if b"\0" in data else ("utf-8", "cp1252", "latin-1")


def _candidates(descriptor: int, path: str) -> tuple[str, ...]:
    first = os.pread(descriptor, 4, 0)
    if not first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        for chunk in _chunks(descriptor):
            if b"\0" in chunk:
                raise _binary(path)
    return _by_start(first)


def _chunks(descriptor: int) -> Iterator[bytes]:
    at = 0
    while chunk := os.pread(descriptor, _CHUNK, at):
        at += len(chunk)
        yield chunk


def _lines(descriptor: int, encoding: str, offset: int, limit: int | None, cap: int) -> Text:
    decoder = codecs.getincrementaldecoder(encoding)()
    end = None if limit is None else offset + limit
    kept: list[str] = []
    size = kept_size = 0
    line = 0  # line feeds so far
    rest = False  # whether anything follows the last one
    for chunk in _chunks(descriptor):
        size += len(chunk)
        text = decoder.decode(chunk)
        feeds = text.count("\n")
        part = _between(text, feeds, offset - line, None if end is None else end - line)
        if part:
            kept.append(part)
            kept_size += len(part)
            if kept_size > cap:
                raise _AboveCap(kept_size)
        line += feeds
        rest = not text.endswith("\n") if text else rest
    decoder.decode(b"", final=True)
    total = line + rest
    left_out = offset > 0 or (end is not None and end < total)
    return Text("".join(kept), encoding, size, total if left_out else None)


class _AboveCap(Exception):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def _between(text: str, feeds: int, start: int, end: int | None) -> str:
    """The part of `text` from its line `start` up to its line `end`, counted from 0; both may be outside it.

    It contains `feeds` line feeds.
    """
    first = _position(text, feeds, start)
    last = len(text) if end is None else _position(text, feeds, end)
    return text[first:last]


def _position(text: str, feeds: int, line: int) -> int:
    """The position where line `line` begins."""
    if line > feeds:  # the quick way through most of a large file
        return len(text)
    at = 0
    for _ in range(line):
        at = text.find("\n", at) + 1
    return at


def _too_large(path: str, size: int, cap: int) -> LcpError:
    return LcpError(
        ErrorCode.TOO_LARGE,
        f"{path!r} has {size} bytes, at most {cap} are read at once",
        {"size": size},
        "Read a part with offset and limit, or raise caps.read_bytes in the configuration file.",
    )


def _binary(path: str) -> LcpError:
    return LcpError(ErrorCode.BINARY, f"{path!r} is binary, a text file is needed")
