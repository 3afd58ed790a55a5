"""Diffs are correct, readable and bounded in effort."""

from __future__ import annotations

import codecs
import random

import pytest

from lcp_engine.changes import unified_diff
from lcp_engine.changes.unified_diff import MAX_BYTES, MAX_LINES, Diff, diff_bytes, take_hunks


def rebuilt(before: str, diff: Diff) -> str:
    """What the diff makes of lines that all end, read as `patch` reads it."""
    old, new, at = before.split("\n"), list[str](), 0
    for line in diff.lines[2:]:
        sign, rest = line[0], line[1:]
        if sign == "@":
            start, _, length = line.split()[1][1:].partition(",")
            to = int(start) - (length != "0")
            new += old[at:to]
            at = to
            continue
        if sign != "+":
            assert old[at] == rest
            at += 1
        if sign != "-":
            new.append(rest)
    return "\n".join([*new, *old[at:]])


@pytest.mark.parametrize("most", [0, 3, 400])
def test_a_diff_makes_the_new_file_of_the_old_one(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unified_diff, "MAX_EDITS", most)
    dice = random.Random(most)
    for _ in range(300):
        alphabet = dice.choice(["ab", "abcdefgh", [str(number) for number in range(50)]])
        old = [dice.choice(alphabet) for _ in range(dice.randrange(1, 40))]
        new = list(old)
        for _ in range(dice.randrange(1, 9)):
            at = dice.randrange(len(new) + 1)
            new[at : at + dice.randrange(2)] = [dice.choice(alphabet)] * dice.randrange(3)
        before, after = ("".join(f"{line}\n" for line in side) for side in (old, new))
        if before != after and after:
            assert rebuilt(before, diff_bytes("f", before.encode(), after.encode())) == after


def test_lines_of_one_side_alone_do_not_hide_what_both_have() -> None:
    """Their number says nothing of how much is to be compared."""
    old = "".join(f"old {n}\nsame\n" for n in range(3000))
    new = "".join(f"new {n}\nsame\n" for n in range(3000))
    found = diff_bytes("a.txt", old.encode(), new.encode())
    assert (found.added, found.removed) == (3000, 3000)


def test_near_changes_share_a_hunk_and_far_ones_do_not() -> None:
    old = [f"{number}\n" for number in range(40)]
    for changed, hunks in (((5, 11), 1), ((5, 13), 2), ((0, 39), 2)):
        new = [f"new {line}" if number in changed else line for number, line in enumerate(old)]
        diff = diff_bytes("f", "".join(old).encode(), "".join(new).encode())
        assert sum(line.startswith("@@") for line in diff.lines) == hunks
        assert (diff.added, diff.removed) == (2, 2)


def test_a_small_change_has_the_usual_form() -> None:
    diff = diff_bytes("docs/a.md", b"one\ntwo\nthree", b"one\n2\nthree\n")
    assert diff.lines == (
        "--- a/docs/a.md", "+++ b/docs/a.md", "@@ -1,3 +1,3 @@", " one", "-two", "-three",
        "\\ No newline at end of file", "+2", "+three",
    )  # fmt: skip


def test_new_and_removed_files_say_so() -> None:
    assert diff_bytes("f", None, b"x\n").lines == ("--- /dev/null", "+++ b/f", "@@ -0,0 +1 @@", "+x")
    assert diff_bytes("f", b"x\n", None).lines == ("--- a/f", "+++ /dev/null", "@@ -1 +0,0 @@", "-x")
    assert "being there" in (diff_bytes("f", None, b"").note or "")
    assert "nothing changes" in (diff_bytes("f", b"x", b"x").note or "")


def test_line_ends_show_only_where_they_change() -> None:
    kept = diff_bytes("f", b"a\r\nb\r\n", b"a\r\nc\r\n")
    assert kept.lines[3:] == (" a", "-b", "+c")
    changed = diff_bytes("f", b"a\r\nb\r\n", b"a\nb\n")
    assert changed.lines[3:] == ("-a\r", "-b\r", "+a", "+b")


def test_a_change_of_encoding_is_noted() -> None:
    before = codecs.BOM_UTF16_LE + "häuser\n".encode("utf-16-le")
    told = diff_bytes("f", before, "häuser\n".encode())
    assert told.note == "encoded as utf-16, will be utf-8"
    assert not told.lines
    assert diff_bytes("f", "ä\n".encode("cp1252"), "ö\n".encode("cp1252")).lines[3:] == ("-ä", "+ö")


def test_binary_and_very_large_files_are_one_sentence() -> None:
    assert str(diff_bytes("f", b"x", b"\0\1").note).startswith("binary: 1 bytes become 2 bytes, SHA-256 ")
    assert str(diff_bytes("f", None, b"\0").note).startswith("binary: a new file of 1 bytes, SHA-256 ")
    assert diff_bytes("f", None, b"\0a").note != diff_bytes("f", None, b"\0b").note
    assert not diff_bytes("f", None, b"\0").is_whole
    large = diff_bytes("f", b"x" * (MAX_BYTES + 1), b"y")
    assert "too large" in (large.note or "")
    assert not large.lines


def test_text_that_replaces_binary_content_is_shown() -> None:
    diff = diff_bytes("run", b"\x7fELF\0\1", b"#!/bin/sh\nrm -rf .\n")
    assert diff.lines[2:] == ("@@ -0,0 +1,2 @@", "+#!/bin/sh", "+rm -rf .")
    assert diff.note == "replaces binary content: 6 bytes become 19 bytes"
    assert diff.is_whole


def test_new_files_that_differ_in_their_bytes_are_not_shown_alike() -> None:
    contents = [b"a\nb\n", b"a\r\nb\r\n", b"\xef\xbb\xbfa\nb\n", b"a\nb", b"\xe9\n", "é\n".encode(), b""]
    shown = {(diff.lines, diff.note) for diff in (diff_bytes("f", None, content) for content in contents)}
    assert len(shown) == len(contents)


def test_a_path_cannot_steer_a_terminal() -> None:
    assert diff_bytes("a\x1b[2J\n+++ b", None, b"x\n").lines[1] == "+++ b/a<U+001B>[2J<U+000A>+++ b"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param("shuffled", marks=pytest.mark.proof),
        "one line",
        pytest.param("scattered", marks=pytest.mark.proof),
        pytest.param("repeated", marks=pytest.mark.proof),
    ],
)
def test_ten_megabytes_are_compared_with_bounded_effort(make: str) -> None:
    dice = random.Random(7)
    old = [f"line {number} {dice.random()}" for number in range(300_000)]
    if make == "scattered":
        new = [f"new {line}" if dice.random() < 0.001 else line for line in old]
    elif make == "shuffled":
        new = dice.sample(old, len(old))
    elif make == "repeated":
        old, new = ["x", "y"] * 1_000_000, ["y", "x", "x"] * 700_000
    else:
        old, new = ["x" * 10_000_000], ["y" * 10_000_000]
    diff = diff_bytes("f", "\n".join(old).encode(), "\n".join(new).encode())
    assert diff.added == len(new) - len(old) + diff.removed
    assert 0 < len(diff.lines) <= MAX_LINES + 2


@pytest.mark.parametrize(
    ("end", "codec"), [("\n", "utf-8"), ("\r\n", "utf-8-sig"), ("\n", "cp1252"), ("\r\n", "utf-16")]
)
def test_each_choice_of_hunks_makes_its_lines_and_leaves_the_others(end: str, codec: str) -> None:
    dice = random.Random(end + codec)
    old = [f"ä {number}" for number in range(60)]

    def file_with(parts: dict[int, list[str]], last: str) -> bytes:
        lines = [line for n, one in enumerate(old) for line in parts.get(n, [one])]
        return (end.join(lines) + last).encode(codec)

    for _ in range(50):
        last = dice.choice(["", end])
        new = {n: dice.choice([[], ["ü"], [old[n], "ü"]]) for n in dice.sample(range(0, 60, 10), 4)}
        before, after = file_with({}, last), file_with(new, last)
        hunks = diff_bytes("f", before, after).hunks
        assert len(hunks) == len(new)
        taken = [at for at in range(len(new)) if dice.random() < 0.5]
        places = sorted(new)
        made = take_hunks(before, after, [hunks[at].name for at in taken])
        assert made == file_with({places[at]: new[places[at]] for at in taken}, last)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"a\n"),
        (b"a\n", None),
        (b"\0", b"a\n"),
        (b"a\n", b"\0"),
        (b"\xe4\n", "ä\n".encode()),
        (b"a\n", b"a\n"),
    ],
)
def test_only_a_change_of_text_in_one_encoding_has_hunks(before: bytes | None, after: bytes | None) -> None:
    assert diff_bytes("f", before, after).hunks == ()


def test_the_name_of_a_hunk_is_that_of_its_lines() -> None:
    lines = [f"{number}\n" for number in range(40)]
    names = []
    for text in ("x\n", "y\n"):
        new = [*lines[:5], text, *lines[6:30], "z\n", *lines[31:]]
        names.append(
            [hunk.name for hunk in diff_bytes("f", "".join(lines).encode(), "".join(new).encode()).hunks]
        )
    assert names[0][0] != names[1][0]
    assert names[0][1] == names[1][1]
