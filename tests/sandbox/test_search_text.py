"""Lines that contain a text, or match a pattern, are found as they are read: decoded, one by one."""

from __future__ import annotations

import codecs
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.reading.search_text import (
    MOST_SHOWN,
    finder_of,
    matching_lines,
    searchable,
    shown_line,
)


def found(data: bytes, text: str, *, is_pattern: bool = False, ignore_case: bool = False) -> list[str] | None:
    text_of = searchable(data)
    if text_of is None:
        return None
    find = finder_of(text, is_pattern=is_pattern, ignore_case=ignore_case).find
    return [text_of[first:last].decode() for first, last, _, _ in matching_lines(text_of, find)]


@pytest.mark.parametrize(
    ("data", "pattern", "lines"),
    [
        (b"one\ntwo\none two\n", "one", ["one", "one two"]),
        (b"one\r\ntwo\r\n", "e$", ["one"]),
        (b"one\ntwo", "o$", ["two"]),
        (b"a b\nc d\n", r"b\s+c", []),
        (b"a\n\nb\n", "^$", [""]),
        (b"a\nb\n", "x*", ["a", "b"]),
        (b"", "x*", []),
        (b"x\na y\n", r"[^z]+y", ["a y"]),
        ("caf\u00e9\n".encode("cp1252"), "é", ["café"]),
        (codecs.BOM_UTF8 + b"a\n", "^a", ["a"]),
        (codecs.BOM_UTF16_LE + "aé\r\nb\r\n".encode("utf-16-le"), "é$", ["aé"]),
        (b"one\0", "one", None),
        ("é\0one".encode(), "one", None),
    ],
)
def test_lines_that_match(data: bytes, pattern: str, lines: list[str] | None) -> None:
    assert found(data, pattern, is_pattern=True) == lines


def test_a_text_is_taken_as_it_is() -> None:
    assert found(b"a.b\naxb\n", "a.b") == ["a.b"]
    assert found(b"A.B\naxb\n", "a.b", ignore_case=True) == ["A.B"]
    assert found("Straße\nSTRASSE\n".encode(), "straß", ignore_case=True) == ["Straße"]


@pytest.mark.parametrize("pattern", ["a(", "[z-a]", r"\1", "a{2000}", "(?=a)"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(LcpError, match="is not an RE2 pattern") as refused:
        finder_of(pattern, is_pattern=True)
    assert refused.value.code is ErrorCode.INVALID_PATTERN


PATTERNS = (
    "a", "^a", "b$", "^$", r"\bb", r"\Ba\B", "a[^b]", "(?:a|^b)$", r"\Aa", r"b\z", "(?-m)^a", "(?-m)b$", r"(?s)a.b", "",
)  # fmt: skip


@given(st.lists(st.text("ab\n ", max_size=6), min_size=1, max_size=4), st.sampled_from(PATTERNS))
def test_what_is_in_one_text_is_in_all_of_them_joined(texts: list[str], pattern: str) -> None:
    find, joins = finder_of(pattern, is_pattern=True)
    assert joins == (pattern not in {r"\Aa", r"b\z", "(?-m)^a", "(?-m)b$", r"(?s)a.b"})
    if joins and any(find(text.encode(), 0) is not None for text in texts):
        assert find("\n".join(texts).encode(), 0) is not None


@given(st.text("ab\n\r é", max_size=40), st.text("ab é", min_size=1, max_size=3))
def test_no_line_is_missed_or_made_up(text: str, needle: str) -> None:
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    wanted = [line for line in lines if needle in line]
    assert found(text.encode(), needle) == wanted
    assert found(text.encode(), re.escape(needle), is_pattern=True) == wanted


@given(st.text(max_size=1500), st.integers(0, 1500))
def test_a_line_is_cut_only_if_it_says_so(line: str, start: int) -> None:
    shown = shown_line(line, min(start, len(line)))
    cuts = re.findall(r"\[([\d,]+) characters\]", shown)
    if len(line) <= MOST_SHOWN:
        assert shown == line
    else:
        assert sum(int(cut.replace(",", "")) for cut in cuts) == len(line) - MOST_SHOWN
        assert line[start : start + 1] in shown
