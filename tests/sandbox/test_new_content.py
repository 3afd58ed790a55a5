"""A file keeps its byte order mark, its encoding and its line ends."""

from __future__ import annotations

import codecs
import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.new_content import compose, edit

LE = codecs.BOM_UTF16_LE
BE = codecs.BOM_UTF16_BE


@pytest.mark.parametrize(
    ("current", "content", "mode", "after"),
    [
        (None, "a\r\nb\n", "overwrite", b"a\r\nb\n"),
        (None, "\ufeffx", "overwrite", b"\xef\xbb\xbfx"),
        (None, "l1", "append", b"l1"),
        (b"", "a\n", "append", b"a\n"),
        (b"hello\n", "more", "append", b"hello\nmore"),
        (b"old\n", "a\nb\n", "overwrite", b"a\nb\n"),
        (b"a\r\nb\r\n", "x\ny\n", "overwrite", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "x\r\ny\n", "overwrite", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "x\n", "append", b"a\r\nb\r\nx\r\n"),
        (b"a\r\nb\n", "x\ny\n", "overwrite", b"x\ny\n"),
        (b"a\r\nb\n", "x\r\ny\n", "overwrite", b"x\r\ny\n"),
        (b"a", "x\ny", "overwrite", b"x\ny"),
        (b"\xef\xbb\xbfa", "x", "overwrite", b"\xef\xbb\xbfx"),
        (b"\xef\xbb\xbfa", "\ufeffx", "overwrite", b"\xef\xbb\xbfx"),
        (b"\xef\xbb\xbfa", "x", "append", b"\xef\xbb\xbfax"),
        (b"\xef\xbb\xbfa\r\n", "x\n", "overwrite", b"\xef\xbb\xbfx\r\n"),
        (b"a", "\ufeffx", "overwrite", b"\xef\xbb\xbfx"),
        (LE + "a".encode("utf-16-le"), "é", "overwrite", LE + "é".encode("utf-16-le")),
        (LE + "a".encode("utf-16-le"), "\ufeffé", "append", LE + "aé".encode("utf-16-le")),
        (BE + "a\r\n".encode("utf-16-be"), "b\n", "append", BE + "a\r\nb\r\n".encode("utf-16-be")),
        (b"caf\xe9", "é", "overwrite", b"\xe9"),
        (b"\x7fELF\0", "text", "overwrite", b"text"),
    ],
)
def test_the_new_file(
    current: bytes | None, content: str, mode: Literal["overwrite", "append"], after: bytes
) -> None:
    assert compose(current, content, mode) == after


@pytest.mark.parametrize(
    ("current", "content", "mode", "code"),
    [
        (None, "x\ud800y", "overwrite", ErrorCode.INVALID_PARAMS),
        (b"a", "x\ud800y", "append", ErrorCode.INVALID_PARAMS),
        (b"caf\xe9", "日", "append", ErrorCode.INVALID_PARAMS),
        (b"caf\xe9", "日", "overwrite", ErrorCode.INVALID_PARAMS),
        (b"caf\xe9", "é", "append", ErrorCode.INVALID_PARAMS),
        (b"\x7fELF\0", "text", "append", ErrorCode.BINARY),
    ],
)
def test_what_a_file_cannot_hold_is_refused(
    current: bytes | None, content: str, mode: Literal["overwrite", "append"], code: ErrorCode
) -> None:
    with pytest.raises(LcpError) as refused:
        compose(current, content, mode)
    assert refused.value.code is code


@given(st.binary(max_size=40).filter(lambda data: b"\0" not in data), st.text(max_size=20))
def test_an_append_only_adds(current: bytes, content: str) -> None:
    try:
        after = compose(current, content, "append")
    except LcpError:
        return
    assert after.startswith(current)


@pytest.mark.parametrize(
    ("current", "old", "new", "after"),
    [
        (b"one two three", "two", "2", b"one 2 three"),
        (b"one two three", "two ", "", b"one three"),
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\r\n", "d\n", b"a\r\nd\r\nc\r\n"),
        (b"a\r\nb\n", "b\n", "c\n", b"a\r\nc\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        (LE + "a é".encode("utf-16-le"), "é", "日", LE + "a 日".encode("utf-16-le")),
        (BE + "ab".encode("utf-16-be"), "b", "c", BE + "ac".encode("utf-16-be")),
        (b"caf\xe9 au lait", "é au", "é du", b"caf\xe9 du lait"),
        (b"aXa", "a", "b", None),
        (b"", "a", "b", None),
    ],
)
def test_an_edit_changes_one_place(current: bytes, old: str, new: str, after: bytes | None) -> None:
    if after is None:
        with pytest.raises(LcpError) as refused:
            edit(current, old, new)
        assert refused.value.code is ErrorCode.NO_SINGLE_MATCH
    else:
        assert edit(current, old, new) == after


@table(
    ("current", "old", "new", "after"),
    [
        (b"a\nb\nc\n", "a\r\nb\r\n", "x\r\ny\r\n", b"x\ny\nc\n"),
        (b"a\nb\n", "b", "x\r\ny", b"a\nx\ny\n"),
        (b"a\r\nb\r\nc\n", "a\nb\n", "x\ny\n", b"x\r\ny\r\nc\n"),
        (b"a\r\nb\nc\n", "b\r\nc\r\n", "x\r\n", b"a\r\nx\n"),
        (b"a\r\nb\nc\n", "b\nc", "x\ny", b"a\r\nx\ny\n"),
        (b"a\rb\rc", "a\nb", "x\ny\nz", b"x\ry\rz\rc"),
        (b"a\r\nb\nc\n", "a\r\nb\n", "x\n", b"x\nc\n"),
    ],
)
def test_old_text_is_matched_by_the_line_ends_of_the_file(
    current: bytes, old: str, new: str, after: bytes
) -> None:
    assert edit(current, old, new) == after


def test_where_lines_end_in_different_ways_the_refusal_says_so() -> None:
    with pytest.raises(
        LcpError, match="begins in line 2 of the file, where lines end in CRLF and LF"
    ) as refused:
        edit(b"0\na\r\nb\nc\n", "a\nb\n", "x\n")
    assert refused.value.code is ErrorCode.NO_SINGLE_MATCH


def test_an_edit_of_every_place_needs_one() -> None:
    assert edit(b"aXa", "a", "b", everywhere=True) == b"bXb"
    with pytest.raises(LcpError) as refused:
        edit(b"aXa", "c", "b", everywhere=True)
    assert refused.value.code is ErrorCode.NO_SINGLE_MATCH


@pytest.mark.parametrize(
    ("current", "old", "said"),
    [
        (b"a\nb\na\nab\n", "a", "is in the file 3 times, beginning in lines 1, 3, 4; once is expected"),
        (b"x\ny\n" * 10, "x\ny\n", "is in the file 10 times, beginning in lines 1, 3, 5, 7, 9, 11, 13, 15 and 2 more"),
        (b"def f():\n\treturn 1\n", "    return 1\n", "its first line is like line 2, so white space or what follows"),
        (b"x = 1\nx  =  1\n", "x = 1\ny = 2\n", "its first line is like lines 1, 2, so"),
        (b"one\n", "two\n", "is not in the file; no line of the file is like its first line"),
        (b"one\n", " \n", "is not in the file"),
    ],
)  # fmt: skip
def test_an_edit_that_does_not_match_once_says_where(current: bytes, old: str, said: str) -> None:
    with pytest.raises(LcpError, match=NO_MATCH + re.escape(said)) as refused:
        edit(current, old, "new")
    assert refused.value.code is ErrorCode.NO_SINGLE_MATCH


NO_MATCH = "the text to replace .*"


@pytest.mark.parametrize(
    ("current", "new", "code"),
    [
        (None, "x", ErrorCode.PATH_NOT_FOUND),
        (b"\x7fELF\0old", "x", ErrorCode.BINARY),
        (b"caf\xe9 old", "日", ErrorCode.INVALID_PARAMS),
        (b"old", "x\ud800", ErrorCode.INVALID_PARAMS),
    ],
)
def test_what_cannot_be_edited_is_refused(current: bytes | None, new: str, code: ErrorCode) -> None:
    with pytest.raises(LcpError) as refused:
        edit(current, "old", new)
    assert refused.value.code is code


@given(st.text(max_size=30), st.text(min_size=1, max_size=3), st.text(max_size=5))
def test_the_rest_of_an_edited_file_stays(text: str, old: str, new: str) -> None:
    current = text.encode()
    try:
        after = edit(current, old, new)
    except LcpError:
        return
    before, _, rest = current.decode("utf-8-sig").partition(old)
    assert after.removeprefix(codecs.BOM_UTF8) == f"{before}{new}{rest}".encode() or b"\r\n" in current
