"""Read text files: their encoding, their lines, within a cap."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.reading.encoding import (
    BAD_BYTE,
    NAME_ENCODING,
    SAMPLE,
    UTF_8,
    Encoding,
    by_mark,
    encoding_named,
    encoding_of,
    guesses,
    sample_of,
)

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Text:
    """Text that was read: `content` is exactly what the bytes decode to with `encoding`, which may be a guess.

    `total` is the number of lines of the whole file if some were left out, else None; `next_byte` is where the rest
    begins of what was read by bytes. U+FFFD stands for each of `bad_bytes`, which are not of that encoding.
    """

    content: str
    encoding: str
    size_bytes: int
    total: int | None = None
    next_byte: int | None = None
    is_part: bool = False
    is_guess: bool = False
    bad_bytes: int = 0


def read_whole(descriptor: int, size: int, cap: int, path: str, encoding: str = "") -> Text:
    """All of an open file. Raises `LcpError` TOO_LARGE above `cap` bytes, BINARY if it is not text, INVALID_PARAMS if
    it is not in the `encoding` that a param names.
    """
    data = read_bytes(descriptor, size, cap, path)
    if encoding:
        found = _expected(encoding, encoding_named(encoding, data), path, lambda one: one.reads(data))
    elif (seen := encoding_of(data)) is not None:
        found = seen
    else:
        raise _binary(path)
    return _text(found, found.decode(data), len(data))


def _text(encoding: Encoding, content: str, size: int, total: int | None = None) -> Text:
    if encoding.errors == "strict":
        return Text(content, encoding.name, size, total, None, total is not None, encoding.is_guess)
    shown, bad = BAD_BYTE.subn("\ufffd", content)
    return Text(shown, encoding.name, size, total, None, total is not None, encoding.is_guess, bad)


def _expected(name: str, encoding: Encoding, path: str, reads: Callable[[Encoding], bool]) -> Encoding:
    """The encoding that a param names, with bytes that are not of it if it is UTF-8."""
    lenient = replace(encoding, errors="surrogateescape") if encoding.codec == "utf-8" else encoding
    found = next((one for one in (encoding, lenient) if reads(one)), None)
    if found is None:
        message = f"{path!r} is not in the encoding {name!r}"
        raise LcpError(ErrorCode.INVALID_PARAMS, message, advice=NAME_ENCODING)
    return found


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


def read_lines(
    descriptor: int, offset: int, limit: int | None, *, cap: int, path: str, encoding: str = ""
) -> Text:
    """Like `read_whole`, but `limit` lines after the first `offset`, and never more than `cap` bytes of them.

    A file of any size is read in chunks. Raises TOO_LARGE if the requested lines are above the cap.
    """
    try:
        return _lines(descriptor, _encoding_in(descriptor, path, encoding), offset, limit, cap)
    except _AboveCap as above:
        raise _too_large(path, above.size, cap) from None


def read_part(descriptor: int, offset: int, limit: int, *, size: int, path: str, encoding: str = "") -> Text:
    """Like `read_whole`, but the characters that begin in the `limit` bytes from `offset` on, of a file of any size."""
    found = _encoding_in(descriptor, path, encoding)
    decoder = codecs.getincrementaldecoder(found.codec)(found.errors)
    start = len(found.mark)
    while start < offset and (chunk := os.pread(descriptor, min(_CHUNK, offset - start), start)):
        decoder.decode(chunk)
        start += len(chunk)
    # A character may have begun before `offset`.
    while decoder.getstate()[0] and (byte := os.pread(descriptor, 1, start)):
        decoder.decode(byte)
        start += 1
    end = max(start, offset + limit)
    kept: list[str] = []
    while start < end and (chunk := os.pread(descriptor, min(_CHUNK, end - start), start)):
        kept.append(decoder.decode(chunk))
        start += len(chunk)
    while start < size and decoder.getstate()[0] and (byte := os.pread(descriptor, 1, start)):
        kept.append(decoder.decode(byte))
        start += 1
    kept.append(decoder.decode(b"", final=True))
    text = _text(found, "".join(kept), size)
    return replace(text, next_byte=start if start < size else None, is_part=offset > 0 or start < size)


def _encoding_in(descriptor: int, path: str, name: str) -> Encoding:
    """The encoding of an open file, or the one that a param names. Raises BINARY, INVALID_PARAMS."""
    start = os.pread(descriptor, SAMPLE, 0)
    if name:
        named = encoding_named(name, start)
        return _expected(name, named, path, lambda one: _reads(descriptor, one))
    marked = by_mark(start)
    has_nul = not marked and any(b"\0" in chunk for chunk in _chunks(descriptor))
    if not marked and not has_nul and _reads(descriptor, UTF_8):
        return UTF_8
    candidates = marked or guesses(start if has_nul else _sample(descriptor), has_nul=has_nul)
    found = next((one for one in candidates if _reads(descriptor, one)), None)
    if found is None:
        raise _binary(path)
    return found


def _reads(descriptor: int, encoding: Encoding) -> bool:
    decoder = codecs.getincrementaldecoder(encoding.codec)(encoding.errors)
    try:
        for nth, chunk in enumerate(_chunks(descriptor)):
            decoder.decode(chunk if nth else chunk[len(encoding.mark) :])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _sample(descriptor: int) -> bytes:
    """Like `sample_of`, of an open file; a line that is cut in two by the chunks counts from there on."""
    sample = b""
    for chunk in _chunks(descriptor):
        sample += sample_of(chunk)
        if len(sample) >= SAMPLE:
            break
    return sample[:SAMPLE]


def _chunks(descriptor: int) -> Iterator[bytes]:
    at = 0
    while chunk := os.pread(descriptor, _CHUNK, at):
        at += len(chunk)
        yield chunk


def _lines(descriptor: int, encoding: Encoding, offset: int, limit: int | None, cap: int) -> Text:
    decoder = codecs.getincrementaldecoder(encoding.codec)(encoding.errors)
    end = None if limit is None else offset + limit
    kept: list[str] = []
    size = kept_size = 0
    line = 0  # line feeds so far
    rest = False  # whether anything follows the last one
    for chunk in _chunks(descriptor):
        text = decoder.decode(chunk if size else chunk[len(encoding.mark) :])
        size += len(chunk)
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
    return _text(encoding, "".join(kept), size, total if left_out else None)


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
        "Read a part with offset and limit (lines), or offset_bytes and limit_bytes, or raise caps.read_bytes in the "
        "configuration file.",
    )


def _binary(path: str) -> LcpError:
    return LcpError(ErrorCode.BINARY, f"{path!r} is binary, a text file is needed")
