"""Different texts never look alike, and nobody is shown less than there is without being told."""

from __future__ import annotations

import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.core.safe_text import (
    block,
    exact,
    hides_nothing,
    json_block,
    json_line,
    one_line,
    shortened,
    without_escapes,
)

IGNORABLE = [
    *[0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)],
    *[*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0],
    *[*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)],
]
"""Default_Ignorable_Code_Point of Unicode."""
ODD = (
    "".join(map(chr, IGNORABLE[::37]))
    + "<>U+0123456789ABCDEF more,\\xu{}\t\n\r \xa0\u2800\u21e5e\u0301\xe9\ud800\u0627\u0628\u200c\u200d"
)
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from(ODD)))
WAYS = {"one_line": one_line, "block": block, "exact": exact}


def _read(shown: str) -> str:
    """The text that a person reads: that there is one proves that no other text looks like this."""
    return re.sub(
        r"<U\+([0-9A-F]{4,6})>", lambda found: chr(int(found[1], 16)), shown.replace("\u21e5\t", "\t")
    )


def test_the_table_has_every_ignorable_code_point() -> None:
    assert len(IGNORABLE) == 4174


@table("way", WAYS)
def test_no_ignorable_code_point_is_passed_on(way: str) -> None:
    show = WAYS[way]
    for code in IGNORABLE:
        for text in (chr(code), f"run('{chr(code)}')", f"\u2603{chr(code)}"):
            if text == "\u2603\ufe0f":
                continue
            assert chr(code) not in show(text), hex(code)


@table("way", WAYS)
def test_what_has_no_glyph_of_its_own_is_named(way: str) -> None:
    for code in range(0x80, sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))
        if kind in ("Cn", "Co") and code % 101:
            continue
        if kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"):
            assert WAYS[way](f"a{chr(code)}b") == f"a<U+{code:04X}>b"


@given(TEXTS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_shown_can_be_read_back(way: str, text: str) -> None:
    assert _read(WAYS[way](text)) == text


@given(TEXTS, TEXTS)
@pytest.mark.parametrize("way", WAYS)
def test_two_texts_are_never_shown_alike(way: str, one: str, other: str) -> None:
    shown = [unicodedata.normalize("NFC", WAYS[way](text)) for text in (one, other)]
    assert (shown[0] == shown[1]) == (one == other)


@given(TEXTS)
def test_a_line_loses_nothing_where_spaces_and_line_ends_are_folded(text: str) -> None:
    shown = one_line(text)
    assert " ".join(shown.split()) == shown


@given(TEXTS)
def test_a_line_that_is_decided_on_ends_in_what_can_be_seen(text: str) -> None:
    seen = exact(text).replace("\u21e5\t", "\u21e5")
    assert all(line == line.rstrip() for line in seen.split("\n"))


@given(TEXTS)
def test_json_without_invisible_characters_is_the_same_value(text: str) -> None:
    for shown in (json_line({text: text}), json_block([text])):
        assert json.loads(shown) in ({text: text}, [text])
        assert all(chr(code) not in shown for code in IGNORABLE[::11] if code != 0xFE0F)


@table(
    "text",
    [
        "naïve café — “ordinary” text, 100 % of it",
        "日本語の文章、한국어 문장, Ελληνικά, Кириллица, עברית",
        "می\u200cخواهم کتاب\u200cها را بخوانم",  # noqa: RUF001 -- Persian
        "क्\u200dष and क्\u200cष",
        "⚠\ufe0f ❤\ufe0f 1\ufe0f\u20e3 👍🏽 🇫🇷 ✅",
        "if a<b and c < 3: print('\\x1b[0m \\u200b <b>U+</b>')",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert block(text) == exact(text) == one_line(text) == text
    assert hides_nothing(text)


@table(
    ("text", "shown"),
    [
        ("cafe\u0301", "cafe<U+0301>"),
        ("\u212b", "<U+212B>"),
        ("\u0301x", "<U+0301>x"),
        ("a\u200cb", "a<U+200C>b"),
        ("\u062f\u200c\u0628", "\u062f<U+200C>\u0628"),
        ("👍\ufe0f", "👍<U+FE0F>"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f<U+FE0F>"),
        ("👩\u200d💻", "👩<U+200D>💻"),
        ("<U+200B>", "<U+003C>U+200B>"),
        ("<5 more>", "<U+003C>5 more>"),
    ],
)
def test_what_cannot_be_told_apart_is_named(text: str, shown: str) -> None:
    assert block(text) == exact(text) == one_line(text) == shown


def test_tabs_and_spaces_at_the_end_are_seen_where_somebody_decides() -> None:
    assert exact("a\tb \n c  ") == "a\u21e5\tb<U+0020>\n c <U+0020>"
    assert exact("a\u21e5b") == "a<U+21E5>b"
    assert one_line(" a  b\t\n") == "<U+0020>a <U+0020>b<U+0009><U+000A>"


def test_what_was_made_safe_is_not_made_safe_again() -> None:
    shown = one_line("a\u200bb")
    assert one_line(shown) == block(shown) == exact(shown) == "a<U+200B>b"


def test_a_text_that_is_cut_says_how_much_is_missing() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdef" * 1000, 3) == "abc<5,997 more>"
    assert shortened("abc<5,997 more>", 99) == "abc<U+003C>5,997 more>"
    named = block("ab\u200bcd")
    assert named == "ab<U+200B>cd"
    for most in range(3, 10):
        assert shortened(named, most) == "ab<10 more>"
    assert shortened(named, 10) == "ab<U+200B><2 more>"
    again = shortened(block("x" * 2000), 100)
    assert [shortened(again, most)[99:] for most in (101, 105, 109)] == ["x<12 more>"] * 3


def test_sequences_for_terminals_are_taken_out_whole() -> None:
    link = "\x1b]8;;http://localhost\x1b\\here\x1b]8;;\x07"
    for written, left in (
        (link, "here"),
        ("\x1b(Ba\x1b=b\x1b[?25h", "ab"),
        ("\x1b]0;title\x07a\r\nb", "a\nb"),
    ):
        assert without_escapes(written) == left
