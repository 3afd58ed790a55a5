"""How a text file is encoded is told by its bytes; what is a guess is said, and nothing new depends on it."""

from __future__ import annotations

import codecs
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tables import table

from lcp_engine import run_job
from lcp_engine.changes.unified_diff import diff_bytes, take_hunks
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.new_content import compose, edit
from lcp_engine.sandbox.reading.encoding import NAMED, Encoding, encoding_of
from lcp_engine.sandbox.reading.search_text import searchable

CHINESE = b"// \xd6\xd0\xce\xc4\nint x;\n"
DAMAGED = "caf\u00e9 x \u00fc\n".encode() + b"\xff\n"


@table(
    ("text", "codec", "found"),
    [
        ("// 中文\nint x;\n", "gbk", "gbk"),
        ("// 这是一个测试文件\n", "gb18030", "gbk"),
        ("// 繁體中文註解測試\n", "big5", "big5"),
        ("// 日本語コメントです\n", "cp932", "cp932"),
        ("// 日本語コメントです\n", "euc_jp", "euc_jp"),
        ("// 한국어 주석입니다\n", "euc_kr", "euc_kr"),
        ("// Привет, мир. Это проверка\n", "cp1251", "cp1251"),
        ("// Привет, мир. Это проверка\n", "koi8-r", "koi8-r"),
        ("café\n", "latin-1", "cp1252"),
        ("hello\r\nwörld\r\n", "utf-16-le", "utf-16-le"),
        ("hello\r\nwörld\r\n", "utf-16-be", "utf-16-be"),
        ("Привет, мир. Это проверка\n", "utf-16-le", "utf-16-le"),
        ("中文、没有标记。\n第二行文字\n", "utf-16-be", "utf-16-be"),
        ("hello é\n", "utf-32-le", "utf-32-le"),
        ("hello é\n", "utf-32-be", "utf-32-be"),
    ],
)
def test_what_no_mark_tells_is_a_guess_that_reads_the_same(text: str, codec: str, found: str) -> None:
    data = text.encode(codec)
    encoding = encoding_of(data)
    assert encoding == Encoding(found, is_guess=True)
    assert encoding.decode(data) == text
    assert (searchable(data) or b"").decode() == text.replace("\r\n", "\n")
    with pytest.raises(LcpError) as refused:
        edit(data, text.splitlines()[0], "ß")
    assert refused.value.code is ErrorCode.INVALID_PARAMS
    assert f"looks like {found}, which is a guess" in str(refused.value)
    assert refused.value.failed.advice is not None
    assert f"Set `encoding` to {found}" in refused.value.failed.advice


@table(
    ("data", "found"),
    [
        ("a é\n".encode("utf-32"), Encoding("utf-32-le", codecs.BOM_UTF32_LE)),
        ("a é\n".encode("utf-16"), Encoding("utf-16-le", codecs.BOM_UTF16_LE)),
        (codecs.BOM_UTF16_LE + b"\0\0a\0", Encoding("utf-16-le", codecs.BOM_UTF16_LE)),
        (b"a\n", Encoding("utf-8")),
        (DAMAGED, Encoding("utf-8", is_guess=True, errors="surrogateescape")),
        ("中文\n".encode() + b"\xd6", Encoding("utf-8", is_guess=True, errors="surrogateescape")),
        (b"a=b\0c=d\0", None),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", None),
        (b"\x7fELF\2\1\1\0" + bytes(8) + b"\2\0\x3e\0", None),
        (bytes(range(256)), None),
    ],
)
def test_marks_damage_and_binary_files_are_told_apart(data: bytes, found: Encoding | None) -> None:
    assert encoding_of(data) == found


@table(
    ("data", "old", "new", "after"),
    [
        (CHINESE, "int x", "int y", b"// \xd6\xd0\xce\xc4\nint y;\n"),
        (CHINESE, "// 中文", "/* 中文 */", b"/* \xd6\xd0\xce\xc4 */\nint x;\n"),
        (DAMAGED, "x", "y", DAMAGED.replace(b"x", b"y")),
        # Two codes of one character: Python writes the other one.
        (b"\x83e\x83X\x83g \x81\xe6 a\n", "a", "b", b"\x83e\x83X\x83g \x81\xe6 b\n"),
        (b"\x83e\x83X \x87\x9a a \x87\x9a a\n", "a \u2235 a", "a \u2235 b", b"\x83e\x83X \x87\x9a a \x87\x9a b\n"),
    ],
)  # fmt: skip
def test_bytes_that_are_not_edited_stay(data: bytes, old: str, new: str, after: bytes) -> None:
    assert edit(data, old, new) == after


@table(
    ("data", "encoding", "old", "new", "after"),
    [
        (CHINESE, "gbk", "x", "字", "// 中文\nint 字;\n".encode("gbk")),
        (CHINESE, "GB18030", "x", "😀", "// 中文\nint 😀;\n".encode("gb18030")),
        (DAMAGED, "utf8", "x", "é", DAMAGED.replace(b"x", "é".encode())),
        ("a b".encode("utf-16-le"), "utf-16-le", "b", "é", "a é".encode("utf-16-le")),
        ("a b".encode("utf-16"), "utf-16", "b", "é", "a é".encode("utf-16")),
        (b"caf\xe9", "latin-1", "caf", "è", b"\xe8\xe9"),
    ],
)
def test_an_edit_in_a_named_encoding(data: bytes, encoding: str, old: str, new: str, after: bytes) -> None:
    assert edit(data, old, new, encoding=encoding) == after


def test_a_text_is_appended_in_a_named_encoding_only_to_a_file_in_it() -> None:
    assert compose(CHINESE, "// 字\n", "append", "gbk") == CHINESE + "// 字\n".encode("gbk")
    for data, name, fact in (
        ("aé!".encode(), "gbk", "the file is not gbk, as `encoding` says; it is utf-8"),
        (CHINESE, "utf-8", "the file is not utf-8, as `encoding` says; it looks like gbk"),
        (b"\x7fELF\0\1\xff", "euc_kr", "the file is not euc_kr, as `encoding` says; it is binary"),
    ):
        with pytest.raises(LcpError, match=fact):
            compose(data, "x", "append", name)
    with pytest.raises(LcpError, match="'é' is new and not ASCII"):
        compose(b"caf\xe9", "é", "append")


def test_bad_bytes_are_not_lost_by_writing_what_was_read() -> None:
    with pytest.raises(LcpError, match=r"U\+FFFD where the file has bytes that are not utf-8"):
        compose(DAMAGED, "café y ü\n\ufffd\n", "overwrite")
    assert compose(DAMAGED, "café y ü\n", "overwrite") == "café y ü\n".encode()
    with pytest.raises(LcpError, match=r"has U\+FFFD, which stands for bytes of the file that are not utf-8"):
        edit(DAMAGED, "ü\n\ufffd", "u")


def test_the_diff_states_guesses_damage_and_changes_of_encoding() -> None:
    same = diff_bytes("f", CHINESE, edit(CHINESE, "int x", "int y"))
    assert same.note == "encoded as gbk, which is a guess"
    assert " // 中文" in same.lines
    changed = diff_bytes("f", CHINESE, compose(CHINESE, "// 中文字\n", "overwrite", "utf-8"))
    assert changed.note == "encoded as gbk, a guess, will be utf-8"
    damaged = diff_bytes("f", DAMAGED, edit(DAMAGED, "x", "y"))
    assert damaged.note == "encoded as utf-8, which is a guess; bytes that are not of it are shown as <0xFF>"
    assert " <0xFF>" in damaged.lines
    names = [hunk.name for hunk in damaged.hunks]
    assert take_hunks(DAMAGED, edit(DAMAGED, "x", "y"), names) == edit(DAMAGED, "x", "y")


def test_a_written_file_tells_that_its_encoding_has_changed(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_bytes(CHINESE)

    def write(path: str, content: str, **more: str) -> dict[str, object]:
        done = run_job("write_file", {"rel_path": path, "content": content, **more}, root=tmp_path)
        return dict(done.result or {"error": str(done.error)})

    assert "is a guess" in str(write("a.c", "// 中文字\n"))
    assert (tmp_path / "a.c").read_bytes() == CHINESE
    found = write("a.c", "// 中文字\n", encoding="utf-8")
    assert (found["encoding_before"], found["encoding_after"]) == ("gbk", "utf-8")
    assert "encoding_after" not in write("a.c", "// 字\n", encoding="utf-8")
    found = write("new.c", "// 字\n", encoding="utf-16")
    assert found["encoding_after"] == "utf-16"
    assert (tmp_path / "new.c").read_bytes() == codecs.BOM_UTF16_LE + "// 字\n".encode("utf-16-le")
    read = run_job("read_file", {"rel_path": "a.c", "encoding": "gbk"}, root=tmp_path)
    assert "'a.c' is not in the encoding 'gbk'" in str(read.error)


@table(
    ("name", "fits"),
    [
        ("uft-8", "did you mean 'utf-8'?"),
        ("rot13", "utf-8, utf-16, gbk"),
        ("utf-7", "did you mean"),
        ("", "utf-8"),
        ("a\0", "utf-8, utf-16, gbk"),
    ],
)
def test_an_encoding_that_is_named_wrongly_is_refused_with_one_that_fits(
    tmp_path: Path, name: str, fits: str
) -> None:
    for kind, params in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old_text": "a", "new_text": "b"}),
    ):
        done = run_job(kind, {"rel_path": "f", "encoding": name, **params}, root=tmp_path)
        assert done.error is not None
        assert done.error.error_code == "INVALID_PARAMS"
        assert f"{name!r} is not an encoding of text files known here; {fits}" in done.error.user_message, (
            kind
        )


def test_a_file_that_is_read_tells_that_its_encoding_is_a_guess(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_bytes(CHINESE)
    (tmp_path / "b.c").write_bytes(DAMAGED)
    (tmp_path / "c.c").write_bytes(CHINESE)
    found = [run_job("read_file", {"rel_path": name}, root=tmp_path).result or {} for name in ("a.c", "b.c")]
    assert [(one["encoding"], one["encoding_is_guess"], one.get("bad_bytes")) for one in found] == [
        ("gbk", True, None),
        ("utf-8", True, 1),
    ]
    sure = run_job("read_file", {"rel_path": "c.c", "encoding": "gbk"}, root=tmp_path).result or {}
    assert "encoding_is_guess" not in sure


def test_plain_files_load_no_detector() -> None:
    program = (
        "import sys; from lcp_engine.sandbox.reading.encoding import encoding_of; "
        "encoding_of('é'.encode()); print('chardetng_py' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout == "False\n"


def test_each_encoding_that_a_param_may_name_writes_text() -> None:
    assert [name for name in NAMED if compose(None, "a\n", "overwrite", name).decode(name) != "a\n"] == []
