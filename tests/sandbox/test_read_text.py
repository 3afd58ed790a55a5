"""Text files are read exactly: encodings, lines, caps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.reading import read_text
from lcp_engine.sandbox.reading.encoding import encoding_of
from lcp_engine.sandbox.reading.read_text import Text, read_lines, read_part, read_whole


def whole(path: Path, cap: int = 1000) -> Text:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_whole(descriptor, os.fstat(descriptor).st_size, cap, "f")
    finally:
        os.close(descriptor)


def lines(path: Path, offset: int, limit: int | None, cap: int = 1000) -> Text:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_lines(descriptor, offset, limit, cap=cap, path="f")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("data", "encoding", "content"),
    [
        (b"", "utf-8", ""),
        (b"a\r\nb\rc\n", "utf-8", "a\r\nb\rc\n"),
        ("é€😀".encode(), "utf-8", "é€😀"),
        (b"\xef\xbb\xbfx", "utf-8-sig", "x"),
        ("hé".encode("utf-16"), "utf-16", "hé"),
        (b"\xfe\xff\x00h\x00i", "utf-16", "hi"),
        (b"caf\xe9 \x93x\x94", "cp1252", "café “x”"),
        (b"caf\xe9 \x81", "latin-1", "café \x81"),
    ],
)
def test_text_is_decoded_without_a_loss(tmp_path: Path, data: bytes, encoding: str, content: str) -> None:
    (tmp_path / "f").write_bytes(data)
    is_guess = encoding in {"cp1252", "latin-1"}
    assert whole(tmp_path / "f") == Text(content, encoding, len(data), is_guess=is_guess)
    assert lines(tmp_path / "f", 0, None) == Text(content, encoding, len(data), is_guess=is_guess)
    assert data.decode(encoding) == content


@pytest.mark.parametrize("data", [b"a\0b", b"\x7fELF\0", b"\xff\xfea"])
def test_what_is_not_text_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(LcpError) as refused:
        whole(tmp_path / "f")
    assert refused.value.code is ErrorCode.BINARY
    with pytest.raises(LcpError) as refused:
        lines(tmp_path / "f", 0, 1)
    assert refused.value.code is ErrorCode.BINARY


def test_a_file_above_the_cap_is_read_in_parts_only(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("line\n" * 1000)
    with pytest.raises(LcpError) as refused:
        whole(tmp_path / "f")
    assert refused.value.code is ErrorCode.TOO_LARGE
    assert lines(tmp_path / "f", 990, 5) == Text("line\n" * 5, "utf-8", 5000, 1000, is_part=True)
    with pytest.raises(LcpError) as refused:
        lines(tmp_path / "f", 0, 900)
    assert refused.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize(
    ("offset", "limit", "content", "total"),
    [
        (0, None, "a\nb\nc", None),
        (0, 3, "a\nb\nc", None),
        (0, 2, "a\nb\n", 3),
        (1, 1, "b\n", 3),
        (2, 10, "c", 3),
        (3, 1, "", 3),
        (10**18, 10**18, "", 3),
    ],
)
def test_offset_skips_lines_and_limit_counts_them(
    tmp_path: Path, offset: int, limit: int | None, content: str, total: int | None
) -> None:
    (tmp_path / "f").write_text("a\nb\nc")
    assert lines(tmp_path / "f", offset, limit) == Text(content, "utf-8", 5, total, is_part=total is not None)


@settings(deadline=None)
@given(
    st.text(st.sampled_from("aé€😀\n\r"), max_size=40),
    st.integers(0, 6),
    st.none() | st.integers(1, 6),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_pieces_of_any_size_make_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, text: str, offset: int, limit: int | None, encoding: str
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "f"
    path.write_bytes(text.encode(encoding))
    expected = [line for line in text.replace("\n", "\n\0").split("\0") if line]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_text, "_CHUNK", 3)
        found = lines(path, offset, limit)
    end = None if limit is None else offset + limit
    assert found.content == "".join(expected[offset:end])
    assert found.total == (None if found.content == text and offset == 0 else len(expected))


@given(st.binary(max_size=60))
def test_whatever_decodes_encodes_to_the_same_bytes(data: bytes) -> None:
    encoding = encoding_of(data)
    if encoding is not None and encoding.codec in {"utf-8", "utf-16-le", "utf-16-be", "cp1252", "latin-1"}:
        assert encoding.encode(encoding.decode(data)) == data


def part(path: Path, offset: int, limit: int, encoding: str = "") -> Text:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_part(descriptor, offset, limit, size=path.stat().st_size, path="f", encoding=encoding)
    finally:
        os.close(descriptor)


@table(
    "codec",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "gbk", "cp932", "big5", "euc_kr", "cp1251"],
)
def test_a_long_line_is_read_by_bytes_in_whole_characters(tmp_path: Path, codec: str) -> None:
    line = {"cp932": "日本語のコメントと、説明です", "euc_kr": "한국어 주석과 설명입니다",
            "cp1251": "Комментарий на русском языке"}.get(codec, "中文的注释和说明文字、中文的名字")  # fmt: skip
    line = line.replace("释", "文").replace("说", "文") if codec == "big5" else line
    (tmp_path / "f").write_bytes(f"x{line * 20}".encode(codec))
    read, at = [], 0
    while True:
        found = part(tmp_path / "f", at, 7)
        read.append(found.content)
        if found.next_byte is None:
            break
        assert found.next_byte > at
        at = found.next_byte
    assert "".join(read) == f"x{line * 20}"
    assert part(tmp_path / "f", 0, 10_000).content == f"x{line * 20}"
    assert part(tmp_path / "f", 10_000, 4).content == ""
