"""Make the new bytes of a file from its current bytes and the text to write. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.reading.encoding import NAME_ENCODING, UTF_8, Encoding, encoding_named, encoding_of

_BARE_LINE_FEED = re.compile(r"(?<!\r)\n")
_LINE_END = re.compile(r"\r\n|\r|\n")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def compose(
    current: bytes | None, content: str, mode: Literal["overwrite", "append"], encoding: str = ""
) -> bytes:
    """The whole new file. A new file is `content` in UTF-8; an existing one keeps its byte order mark, its encoding,
    and its line ends if all of them are CRLF. With `encoding` the file is written in that; it stays so for an append.

    Raises `LcpError`: INVALID_PARAMS if `content` cannot be encoded, or its encoding would be a guess, BINARY for an
    append to a binary file.
    """
    _check(content)
    kept = None
    if current:
        kept = _named_of(current, encoding) if encoding and mode == "append" else encoding_of(current)
        if kept is None and mode == "append":
            raise LcpError(ErrorCode.BINARY, "the file is binary, text can only be appended to a text file")
    if not current or kept is None:
        return _encode(encoding_named(encoding, b"", is_new=True) if encoding else UTF_8, content)
    text = kept.decode(current)
    if _ends_in_crlf_only(text):
        content = _BARE_LINE_FEED.sub("\r\n", content)
    chosen = encoding_named(encoding, current, is_new=True) if encoding and mode == "overwrite" else kept
    if chosen.mark:
        content = content.removeprefix("\ufeff")
    if mode == "append":
        if not encoding:
            _check_guess(kept, content, "")
        return current + _encode(replace(chosen, mark=b""), content)
    _check_lost(kept, text, content)
    if not encoding:
        _check_guess(kept, content, text)
    return _encode(replace(chosen, errors="strict"), content)


def edit(current: bytes | None, old: str, new: str, *, everywhere: bool = False, encoding: str = "") -> bytes:
    """The whole file with `new` in the place of `old`, both with the line ends of the file. Its byte order mark, its
    encoding, and all bytes elsewhere are kept.

    Raises `LcpError`: NO_SINGLE_MATCH unless `old` is in the file once (or, `everywhere`, at least once),
    PATH_NOT_FOUND without a file, BINARY for a binary one, INVALID_PARAMS if `new` cannot be encoded, the encoding of
    what is new in it would be a guess, or the file is not in `encoding`.
    """
    _check(new)
    if current is None:
        raise LcpError(ErrorCode.PATH_NOT_FOUND, "there is no file whose text could be replaced")
    kept = _named_of(current, encoding) if encoding else encoding_of(current)
    if kept is None:
        raise LcpError(ErrorCode.BINARY, "the file is binary, text can only be replaced in a text file")
    text = kept.decode(current)
    old, new = _with_line_ends(text, old, new)
    _check_matches(kept, text, old, everywhere=everywhere)
    if not encoding:
        _check_guess(kept, new, old)
    if kept == UTF_8 or kept.encode(text) == current:
        return _encode(kept, text.replace(old, new))
    return _spliced(kept, current, text, old, new)


def _named_of(current: bytes, name: str) -> Encoding:
    """The encoding that a param names, of a file that is in it."""
    named, looks = encoding_named(name, current), encoding_of(current)
    is_other = (
        looks is not None and not looks.is_guess and looks.codec != named.codec and not current.isascii()
    )
    if not is_other and named.reads(current):
        return named
    if looks is not None and (looks.codec, looks.errors) == (named.codec, "surrogateescape"):
        return looks  # some of its bytes are bad
    fact = (
        "is binary" if looks is None else f"looks like {looks.name}" if looks.is_guess else f"is {looks.name}"
    )
    message = f"the file is not {named.name}, as `encoding` says; it {fact}"
    raise LcpError(ErrorCode.INVALID_PARAMS, message, advice=NAME_ENCODING)


def _encode(encoding: Encoding, content: str) -> bytes:
    try:
        return encoding.encode(content)
    except UnicodeEncodeError as error:
        raise LcpError(
            ErrorCode.INVALID_PARAMS,
            f"the file is {encoding.name}, which has no {error.object[error.start]!r}",
            advice="Use characters that it has, or overwrite the whole file with `encoding: utf-8`.",
        ) from error


def _check_guess(kept: Encoding, new: str, replaced: str) -> None:
    """Raises INVALID_PARAMS if what is new in `new` is not ASCII, and the encoding of the file a guess."""
    if not kept.is_guess or new.isascii():
        return
    known = set(_NOT_ASCII.findall(replaced))
    added = next((run for run in _NOT_ASCII.findall(new) if run not in known), None)
    if added is not None:
        raise LcpError(
            ErrorCode.INVALID_PARAMS,
            f"the file looks like {kept.name}, which is a guess, and {added[:20]!r} is new and not ASCII",
            advice=f"Set `encoding` to {kept.name} if the file is that, or to its own. To change it to UTF-8, "
            "overwrite the whole file with `encoding: utf-8`.",
        )


def _check_lost(kept: Encoding, text: str, content: str) -> None:
    """Raises INVALID_PARAMS if `content` has U+FFFD for bytes of the file that are not of its encoding."""
    if kept.errors == "strict" or "\ufffd" not in content or "\ufffd" in text:
        return
    raise LcpError(
        ErrorCode.INVALID_PARAMS,
        f"the text has U+FFFD where the file has bytes that are not {kept.codec}; they would be lost",
        advice="Use edit_file with a text around them: it keeps them.",
    )


def _with_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """`old` and `new` with the line ends that the file has there.

    Raises NO_SINGLE_MATCH where those differ, so that it is unclear which `new` gets.
    """
    if "\n" not in text and "\r" not in text:
        return old, new
    if "\r" not in text:
        return old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if _ends_in_crlf_only(text):
        return _BARE_LINE_FEED.sub("\r\n", old), _BARE_LINE_FEED.sub("\r\n", new)
    wanted = _LINE_END.sub("\n", old)
    if old in text or "\n" not in wanted:
        return old, new
    normal, ends = _LINE_END.sub("\n", text), _LINE_END.findall(text)
    at = normal.find(wanted)
    if at < 0:
        return old, new
    line = normal.count("\n", 0, at)
    found = ends[line : line + wanted.count("\n")]
    if len(set(found)) > 1:
        named = " and ".join(sorted({_END_NAMES[end] for end in found}))
        raise LcpError(
            ErrorCode.NO_SINGLE_MATCH,
            f"the text to replace begins in line {line + 1} of the file, where lines end in {named}",
            advice="Give it with the line ends that each line has, or replace the lines one by one.",
        )
    return _LINE_END.sub(found[0], old), _LINE_END.sub(found[0], new)


_END_NAMES = {"\r\n": "CRLF", "\n": "LF", "\r": "CR"}


def _alike(one: str, other: str) -> int:
    """The number of characters at the start that are the same."""
    differ = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def _spliced(kept: Encoding, current: bytes, text: str, old: str, new: str) -> bytes:
    """The file with each `old` replaced, where its codec would write some of the other bytes in another way."""
    first = _alike(old, new)
    last = _alike(old[first:][::-1], new[first:][::-1])
    added = replace(kept, mark=b"")
    made, done = [kept.mark], len(kept.mark)
    for nth, part in enumerate(pieces := text.split(old)):
        stays = (
            (old[len(old) - last :] if nth else "") + part + (old[:first] if nth < len(pieces) - 1 else "")
        )
        for piece, is_kept in ((stays, True), (old[first : len(old) - last], False)):
            if not is_kept and nth == len(pieces) - 1:
                break
            end = done + len(added.encode(piece))
            if not added.reads(current[done:end]) or added.decode(current[done:end]) != piece:
                message = f"the file is {kept.name} with characters that are not written as usual"
                raise LcpError(ErrorCode.INVALID_PARAMS, message, advice="Overwrite the whole file instead.")
            made.append(current[done:end] if is_kept else _encode(added, new[first : len(new) - last]))
            done = end
    return b"".join(made)


_MOST_LINES = 8
"""Line numbers that a message names."""


def _check_matches(kept: Encoding, text: str, old: str, *, everywhere: bool) -> None:
    found = text.count(old)
    if found == 1 or (found and everywhere):
        return
    if found:
        lines = _numbers(_lines_of_matches(text, old), found)
        fact = f"is in the file {found} times, beginning in {lines}; once is expected"
        advice = "Give more of the text around the place that is meant, or set replace_all to replace each."
    else:
        fact = f"is not in the file{_near_miss(text, old)}"
        if kept.errors != "strict" and "\ufffd" in old:
            fact = f"has U+FFFD, which stands for bytes of the file that are not {kept.codec}, and is not in it so"
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


def _ends_in_crlf_only(text: str) -> bool:
    return "\r\n" in text and not _BARE_LINE_FEED.search(text)
