"""How a diff is drawn: numbers, words that differ, two versions side by side."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web.conftest import House

from lcp_engine.changes.unified_diff import Diff, diff_bytes
from lcp_engine.web import diff_view
from lcp_engine.web.diff_view import (
    LONGEST_COMPARED,
    LONGEST_FOUND,
    PAIRS_COMPARED,
    Excerpt,
    ExcerptLine,
    differing,
    excerpt,
    lines_with,
    part,
    whole,
)


def _marks(line: str, spans: tuple[tuple[int, int], ...]) -> list[str]:
    return [line[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("old", "new", "removed", "added"),
    [
        ("-return a + b", "+return a - b", ["+"], ["-"]),
        ("-def f(a, b):", "+def f(a, c, b):", [], ["c, "]),
        ("-one two three four", "+one 2 three 4", ["two", "four"], ["2", "4"]),
        ("-  indented = 1", "+    indented = 1", ["  "], ["    "]),
        ("-nothing alike", "+%%%%%%%%%%%%%", [], []),
        ("-", "+", [], []),
        ("-same", "+same", [], []),
    ],
)
def test_the_words_that_differ_are_marked(old: str, new: str, removed: list[str], added: list[str]) -> None:
    spans = differing(old, new)
    assert (_marks(old, spans[0]), _marks(new, spans[1])) == (removed, added)


def test_long_lines_and_many_pairs_cost_no_more_than_short_ones() -> None:
    line = "word " * (LONGEST_COMPARED // 5)
    assert differing(f"-{line}x", f"+{line}y") == ((), ())
    before = "".join(f"a b c d {n} f\n" for n in range(PAIRS_COMPARED + 50))
    after = before.replace("a b", "A b").replace("d ", "D ")
    lines = [
        line
        for line in whole(diff_bytes("f", before.encode(), after.encode())).lines
        if line.css_class == "add"
    ]
    assert _marks(lines[0].text, lines[0].marked) == ["A", "D"]
    last = lines[-1]
    assert _marks(last.text, last.marked) == ["A b c D"], "from the first difference to the last"


def test_each_line_has_its_numbers() -> None:
    before = "".join(f"line {n}\n" for n in range(1, 41))
    after = before.replace("line 3\n", "").replace("line 30\n", "line thirty\nand more\n")
    lines = whole(diff_bytes("f", before.encode(), after.encode())).lines
    numbers = {line.text: (line.old, line.new) for line in lines}
    assert numbers["-line 3"] == (3, None)
    assert numbers[" line 4"] == (4, 3)
    assert numbers["-line 30"] == (30, None)
    assert numbers["+line thirty"] == (None, 29)
    assert numbers["+and more"] == (None, 30)
    assert numbers[" line 31"] == (31, 31)


def test_a_removed_line_that_looks_like_the_head_of_a_file_or_of_a_hunk_is_a_removed_line() -> None:
    lines = whole(diff_bytes("f", b"-- a\n@@ -1 +1 @@\nx\n", b"x\n")).lines
    assert [line.css_class for line in lines] == ["hunk", "del", "del", "same"]


def test_the_files_of_a_joined_diff_are_told_from_their_lines() -> None:
    one, two = diff_bytes("one", b"a\n", b"b\n"), diff_bytes("two", None, b"c\n")
    joined = Diff("all", ("", "", "# 1/2 one", *one.lines, "# 2/2 two", *two.lines))
    classes = [line.css_class for line in whole(joined).lines]
    assert classes == [*["file-head"] * 3, "hunk", "del", "add", *["file-head"] * 3, "hunk", "add"]


def test_each_line_has_an_address_and_numbers_that_lead_to_it() -> None:
    drawn = part(diff_bytes("f", b"a\nb\nc\n", b"a\nB\nc\n"), is_split=True)
    ids = re.findall(r' id="([^"]+)"', drawn.html)
    assert ids == [f"{drawn.anchor}-{place}" for place in ("L1", "B2", "L2", "L3")]
    assert {*re.findall('href="#([^"]+)"', drawn.html)} == {*ids}
    assert "<a" not in whole(diff_bytes("f", b"a\n", b"b\n")).html, "a list has several diffs of one file"


def test_lines_of_several_files_in_one_diff_have_no_addresses() -> None:
    one, two = diff_bytes("one", b"a\n", b"b\n"), diff_bytes("two", None, b"c\n")
    joined = Diff("all", ("", "", "# 1/2 one", *one.lines, "# 2/2 two", *two.lines))
    assert [" id=" in part(joined, first, lines=3).html for first in (0, 3)] == [False, False]


def test_side_by_side_an_unchanged_line_is_on_both_sides_and_read_out_once() -> None:
    diff = diff_bytes("f", b"a\nb\n", b"a\nc\n")
    split, unified = whole(diff, is_split=True), whole(diff)
    assert unified.html.count(" a<") == 1
    assert re.findall(r'<span class="([^"]+)"[^>]*aria-hidden="true"> a<', split.html) == ["same twin"]
    assert "split" in split.css_class.split()
    assert "split" not in unified.css_class.split()


@pytest.mark.parametrize("draw", [whole, excerpt])
def test_what_is_in_a_line_stays_text(draw: object) -> None:
    assert callable(draw)
    drawn: Excerpt = draw(diff_bytes("f", b"x = '<b>'\n", b"x = '</mark><script>'\n"))
    assert "<script>" not in drawn.html
    assert "&lt;/mark&gt;" in drawn.html.replace("<mark>", "").replace("</mark>", "")


def test_a_browser_is_shown_white_space_changes_as_it_chose(house: House) -> None:
    (house.root / "a.md").write_text("one\ntwo\n")
    job_id = house.hold("a.md", "one\n  two\n")
    answer = house.post("/view", {"space": "hidden", "back": f"/jobs/{job_id}"})
    assert "left out: only white space differs" in answer.words
    assert "a decision is about them, too" in answer.words
    assert "<mark>  </mark>two" in house.get("/inbox").text, "a list shows all"
    house.post("/view", {"diff": "split", "back": "/"})
    assert "Show white space changes" in house.get(f"/jobs/{job_id}/diff").words
    assert (
        "Hide white space changes" in house.post("/view", {"space": "shown", "back": f"/jobs/{job_id}"}).words
    )
    assert "<mark>  </mark>two" in house.get(f"/jobs/{job_id}").text
    assert house.approve(job_id).status == 200


def test_a_browser_is_shown_diffs_as_it_chose(house: House) -> None:
    (house.root / "a.md").write_text("one\ntwo\n")
    job_id = house.hold("a.md", "one\n2\n")
    paths = [f"/jobs/{job_id}", f"/jobs/{job_id}/diff", "/inbox", "/inbox/all"]
    assert not any("code digits-1 split" in house.get(path).text for path in paths)
    answer = house.post("/view", {"diff": "split", "back": "/inbox?kind=write_file"})
    assert answer.status == 200
    assert "Diffs in one column" in answer.words
    assert all("code digits-1 split" in house.get(path).text for path in paths)
    house.post("/view", {"diff": "unified", "back": "/"})
    assert not any("code digits-1 split" in house.get(path).text for path in paths)


@pytest.mark.parametrize(
    "back", ["//evil.example/", "https://evil.example/", "/\\evil.example", "\\\\evil", ""]
)
def test_choosing_leads_to_no_other_host(house: House, back: str) -> None:
    answer = house.browser.post(
        "/view", data={"csrf": house.keys.csrf, "diff": "split", "back": back},
        headers={"Origin": house.home}, follow_redirects=False,
    )  # fmt: skip
    assert answer.status_code == 303
    assert re.match(r"/(?![/\\])", answer.headers["location"])


@given(
    st.lists(st.sampled_from(["a", "b", "c", "\\", "x" * 50]), max_size=60),
    st.integers(1, 9),
    st.integers(1, 99),
)
def test_the_parts_of_a_diff_are_the_whole(lines: list[str], most: int, characters: int) -> None:
    before = "\n".join(f"{n} same" for n in range(40))
    diff = diff_bytes("f", before.encode(), before.replace("7 same", "\n".join(lines)).encode())
    drawn, first = list[ExcerptLine](), 0
    while True:
        one = part(diff, first, lines=most, characters=characters)
        drawn += one.lines
        assert one.omitted == len(diff.lines[2:]) - len(drawn)
        if not one.omitted:
            break
        assert one.behind > first
        first = one.behind
    assert [replace(line, marked=()) for line in drawn] == [
        replace(line, marked=()) for line in whole(diff).lines
    ]


def test_lines_with_a_text_are_found_in_letters_of_any_case_and_marked() -> None:
    before = "".join(f"line {n}\n" for n in range(1, 31))
    after = before.replace("line 20\n", "a <b> LINE 20, line 20")
    found = lines_with(diff_bytes("f", before.encode(), after.encode()), "Line 20", 9)
    assert [(at, line.place, _marks(line.text, line.marked)) for at, line in found] == [
        (4, "B20", ["line 20"]),
        (6, "L20", ["LINE 20", "line 20"]),
    ]
    assert "&lt;b&gt; <mark>LINE 20</mark>, " in found[1][1].body
    assert lines_with(diff_bytes("f", None, b"x"), "newline", 9) == [], "that is no line of the file"
    assert len(lines_with(diff_bytes("f", None, b"x\n" * 50), "X", 9)) == 9


def test_of_a_long_line_what_is_around_the_text_is_shown() -> None:
    text = f"{'x' * 5000} here {'y' * 5000}\n"
    ((_, line),) = lines_with(diff_bytes("f", None, text.encode()), "HERE", 9)
    assert _marks(line.text, line.marked) == ["here"]
    assert len(line.text) <= LONGEST_FOUND + 3
    assert (line.text[:3], line.text[-2:]) == ("+\u2026x", "y\u2026")


# -- changes of white space alone


SPACED = "".join(f"line {n}\n" for n in range(1, 41))


def test_lines_that_differ_in_white_space_alone_are_left_out_and_counted() -> None:
    after = SPACED.replace("line 3\n", "\tline  3\n").replace(
        "line 30\nline 31\n", "line thirty\n  line 31\n"
    )
    diff = diff_bytes("f", SPACED.encode(), after.encode())
    drawn = part(diff, hides_space=True)
    assert [(line.text, line.css_class, line.old, line.new, line.left_out) for line in drawn.lines] == [
        ("@@ -1,6 +1,6 @@", "hunk", None, None, 0),
        ("7 lines are left out: only white space differs", "space", None, None, 7),
        ("@@ -27,8 +27,8 @@", "hunk", None, None, 0),
        *((f" line {n}", "same", n, n, 0) for n in (27, 28, 29)),
        ("-line 30", "del", 30, None, 0),
        ("+line thirty", "add", None, 30, 0),
        ("   line 31", "same", 31, 31, 0),
        *((f" line {n}", "same", n, n, 0) for n in (32, 33, 34)),
        ("1 line is left out: only white space differs", "space", None, None, 1),
    ]
    assert 'data-lines="7"' in drawn.html
    assert (drawn.behind, drawn.omitted, drawn.added) == (len(diff.lines) - 2, 0, diff.added)


@pytest.mark.parametrize(
    ("before", "after"),
    [("a\n", "b\n"), ("a\n", "a"), ("a\nb\n", "b \na\n"), ("x\n", "x\n\n"), ("", "a\n"), ("a b\n", "a-b\n")],
)
def test_other_changes_stay(before: str, after: str) -> None:
    diff = diff_bytes("f", before.encode(), after.encode())
    changed = {line.text for line in part(diff).lines if line.css_class in ("del", "add")}
    left = {line.text for line in part(diff, hides_space=True).lines if line.css_class in ("del", "add")}
    assert left
    assert left <= changed


def test_a_long_block_of_other_white_space_is_left_out_but_for_what_else_changes() -> None:
    before = "".join(f"    x{n}\n" for n in range(450))
    after = before.replace("    ", "  ").replace("x200\n", "y\n")
    lines = part(diff_bytes("f", before.encode(), after.encode()), hides_space=True).lines
    changed = [line.text for line in lines if line.css_class in ("del", "add")]
    assert changed == ["-    x200", "+  y"]
    assert lines[-1].left_out == 449


@given(st.lists(st.sampled_from(["a", " a", "a ", "b", "\tb", ""]), max_size=30), st.integers(1, 9))
def test_parts_without_white_space_changes_stand_for_all_lines(lines: list[str], most: int) -> None:
    before = "\n".join(f"{n} same" for n in range(40))
    after = before.replace("7 same", "\n".join(lines)).replace("20 same", "20  same")
    diff = diff_bytes("f", before.encode(), after.encode())
    first = stood = 0
    while first < len(diff.lines[2:]):
        one = part(diff, first, lines=most, hides_space=True)
        stood += sum(line.left_out or 1 for line in one.lines)
        first = one.behind
    assert stood == len(diff.lines[2:])


# -- colours of the syntax


def _tints(line: ExcerptLine) -> list[tuple[str, str]]:
    return [(line.text[start:end], css_class) for start, end, css_class in line.tints]


CODE = b'def f(x):\n    """One\n    import two."""\n    return "a" + str(1)  # no\n'


def test_code_has_the_colours_of_its_language_also_over_several_lines() -> None:
    lines = part(diff_bytes("src/a.py", None, CODE)).lines[1:]
    assert _tints(lines[0]) == [("def", "k"), ("f", "f")]
    assert [css_class for line in lines[1:3] for _, css_class in _tints(line)] == ["s", "s"]
    assert _tints(lines[2])[0][0].endswith('import two."""')
    kinds = [css_class for _, css_class in _tints(lines[3])]
    assert (kinds[0], kinds[-1], {*kinds}) == ("k", "c", {"k", "s", "m", "c"})


def test_each_side_of_a_hunk_is_read_by_itself() -> None:
    lines = part(diff_bytes("a.py", b'x = """\nfor\n"""\n', b"x = 1\nfor\n2\n")).lines
    by_sign = {line.text: _tints(line) for line in lines}
    assert by_sign[" for"] == [("for", "k")]
    assert by_sign['-x = """'] == [('"""', "s")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.unknown", "def f(): pass"),
        ("py", "def f(): pass"),
        ("a.py", "x = 1 + " + "1 + " * 100),
        ("a.py", ""),
    ],
)
def test_what_has_no_colours_stays_plain(path: str, text: str) -> None:
    drawn = part(diff_bytes(path, None, f"{text}\n".encode()))
    assert "tinted" not in drawn.css_class
    assert "<i" not in drawn.html


PIECES = [
    "def ",
    "x",
    '"',
    "'",
    "<b>",
    "&amp;",
    "\n",
    "/*",
    "*/",
    "#",
    " = ",
    "12",
    "\u202e",
    "\t",
    '"""',
    "return",
]


@given(
    st.sampled_from(["abc.py", "a.js", "a.html", "a.c", "a.yaml"]),
    st.lists(st.sampled_from(PIECES), max_size=40),
)
def test_colours_change_no_character(path: str, parts: list[str]) -> None:
    before, after = "".join(parts), "".join(parts[::-1])
    for line in part(diff_bytes(path, before.encode(), after.encode())).lines:
        plain = replace(line, tints=(), marked=()).html()
        assert re.sub('<i class="[a-z]">|</i>|</?mark>', "", line.html()) == plain


def test_lines_of_a_list_are_drawn_once_as_long_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_view, "LINES_KEPT", 8)
    first, second, third = (diff_bytes("a.txt", b"", f"{n}\n{n}\n".encode()) for n in (7101, 7102, 7103))
    drawn = excerpt(first).lines
    assert excerpt(second).lines is not drawn
    assert excerpt(first).lines is drawn
    excerpt(third)
    assert excerpt(first).lines is drawn, "the one that was used least of late made room"
