"""A file keeps its byte order mark, its encoding and its line ends."""

from __future__ import annotations

import codecs
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.new_content import compose

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
        (b"caf\xe9", "é", "append", b"caf\xe9\xe9"),
        (b"caf\xe9", "é", "overwrite", b"\xe9"),
        (b"caf\xe9", "日", "overwrite", "日".encode()),
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
