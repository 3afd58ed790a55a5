"""Everything that is printed at 40 and at 80 columns: no word is broken, and commands stay whole."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.cli.terminal import Terminal

from lcp_engine.cli.app import lcp as group
from lcp_engine.cli.console.wrapping import wrap_ours
from lcp_engine.cli.tables import (
    Table,
    cut_between_words,
    fact_column,
    id_column,
    plain,
    rows_in,
    text_column,
)
from lcp_engine.features.top.keys import key_lines
from lcp_engine.features.top.missions_view import table_content

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Lcp

WORDS = st.lists(
    st.sampled_from(
        ["a", "word", "水水", "wide水", "`lcp db check`", "`lcp approve J`,", "x" * 45, "(`lcp held`)"]
    )
)


def helps(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from helps(inner, click.Context(inner, info_name=name, parent=context))


@cache
def every() -> list[tuple[click.Command, click.Context]]:
    return [*helps(group, click.Context(group, info_name="lcp"))]


@pytest.mark.parametrize("width", [40, 80])
def test_no_help_is_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command, context in every():
        examples = {part for one in getattr(command, "examples", ()) for part in (one, one.split("   ")[0])}
        lines = command.get_help(context).splitlines()
        assert {line.strip() for line in lines if cell_len(line) > width} <= examples, context.command_path


def test_a_narrow_help_breaks_no_word_and_cuts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for command, context in every():
        words = []
        for width in (40, 100):
            monkeypatch.setenv("COLUMNS", str(width))
            words.append(command.get_help(context).split())
        assert words[0] == words[1], context.command_path
        assert "..." not in "".join(words[0]).replace("]...", "")


@pytest.mark.parametrize("width", [40, 80])
def test_a_command_in_a_help_stays_on_one_line(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command, context in every():
        assert all(line.count("`") % 2 == 0 for line in command.get_help(context).splitlines())


@given(WORDS, st.integers(8, 60), st.sampled_from([0, 2]))
def test_sentences_are_broken_between_words_alone(words: list[str], width: int, hang: int) -> None:
    text = " ".join(words)
    lines = wrap_ours(text, width, hang)
    assert " ".join(" ".join(lines).split()) == text
    for number, line in enumerate(lines):
        assert cell_len(line) <= width or line in words
        assert line.count("`") % 2 == 0
        assert not number or line in words or line.startswith(" " * hang)


def test_what_fits_on_a_line_is_put_there() -> None:
    said = "job 3 waits: `lcp approve 3` lets it run, `lcp reject 3 --reason TEXT` does not"
    assert wrap_ours(said, 30, 2) == [
        "job 3 waits: `lcp approve 3`",
        "  lets it run,",
        "  `lcp reject 3 --reason TEXT`",
        "  does not",
    ]
    assert wrap_ours("a ` b c", 3) == ["a `", "b c"]


def test_the_help_of_the_narrowest_terminal_has_no_blanks_at_the_end_of_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "1")
    shown = "\n".join(command.get_help(context) for command, context in every())
    assert not re.search(" $", shown, re.MULTILINE)


KEYS = [
    ("y", "yes"),
    ("n", "no"),
    ("e", "edit"),
    ("a", "all"),
    ("enter", "open"),
    ("s", "say"),
    ("tab", "scroll"),
]


@given(st.integers(6, 100), st.integers(1, 4))
def test_the_keys_that_fit_are_shown_and_always_the_way_out(width: int, most: int) -> None:
    lines = key_lines(KEYS, [("q", "quit")], width, most)
    assert len(lines) <= most
    assert all(len("  ".join(" ".join(key).rstrip() for key in line)) <= max(width, 10) for line in lines)
    shown = [key for line in lines for key in line]
    assert shown[-1] == ("q", "quit")
    assert shown[:-1] == KEYS or ("…", "") in shown or width < 10


@pytest.mark.parametrize("width", [30, 40, 80])
def test_the_cursor_of_a_narrow_terminal_is_on_the_row_that_it_selects(width: int) -> None:
    table = Table([id_column("id"), fact_column("state"), text_column("goal", least=20)])
    for number in (31, 32):
        table.add(str(number), "waiting, 12 of them open", "word " * 9)
    rows = table_content(table, width, [31, 32]).rows
    keyed = [(row.key, row.text.plain.split()[0]) for row in rows if row.key is not None]
    assert keyed == [(31, "31"), (32, "32")]
    assert all(row.text.cell_len <= width for row in rows)


def test_a_job_on_a_terminal_breaks_no_word(lcp: Lcp) -> None:
    long = "w" * 100
    asked = lcp.ask("write_file", path="notes.md", content=f"some words that fill more than a line\n{long}\n")
    assert lcp("launch", lcp.mission(asked), "--root", "root", "-q").code == 0
    assert lcp("work", "--until-idle", "-q").code == 0
    known = {*lcp("job", "2").out.split()}
    with Terminal(lcp, "job", "2", size=(24, 40)) as terminal:
        assert terminal.end() == 0
    lines = click.unstyle(terminal.shown).splitlines()
    assert max(map(cell_len, lines)) <= 40
    assert {word for line in lines for word in line.split() if not set(word) <= {"w"}} <= known
    assert not any(line.startswith("w") for line in lines), "what a planner wrote begins no line"


def test_a_stacked_row_breaks_words_alone_that_are_longer_than_a_line() -> None:
    table = Table([id_column("id"), text_column("why", least=90)])
    table.add("1", f"the thing could not be done because {'w' * 30} is missing")
    assert [plain(line) for line in table.lines(30)] == [
        "1",
        "  why: the thing could not be",
        "  done because wwwwwwwwwwwwwww",
        "  wwwwwwwwwwwwwww is missing",
    ]


def test_sentences_on_a_terminal_stay_on_it(lcp: Lcp) -> None:
    for words in (["frobnicate"], ["missions", "--shipped"]):
        with Terminal(lcp, *words, size=(24, 40)) as terminal:
            terminal.end()
        wide = [line for line in terminal.shown.splitlines() if cell_len(line) > 40]
        assert all(" " not in line.strip() or line.strip().startswith(("`", "lcp ")) for line in wide), wide
    piped = lcp("frobnicate").err
    assert piped.count("\n") == 1


@given(text=WORDS.map(" ".join), width=st.integers(3, 40))
def test_rows_of_a_text_fit_are_all_of_it_and_end_between_words(text: str, width: int) -> None:
    rows = rows_in(text, width)
    assert "".join(rows) == text
    assert all(0 < cell_len(row) <= width for row in rows)
    for row, following in pairwise(rows):
        if not row.endswith(" ") and not following.startswith(" "):
            assert " " not in row[len(row) // 2 :], "it could have ended there"
    cut = cut_between_words(text, width)
    assert cell_len(cut) <= width
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))
