"""Print tables that fit any terminal: texts shrink, ids never."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TextIO

import click
from rich.cells import cell_len, chop_cells, set_cell_size

from lcp_engine.cli.console.wrapping import terminal_width
from lcp_engine.core.safe_text import block, one_line

COLOURS: Mapping[str, str] = {
    "held": "yellow", "blocked": "yellow", "queued": "cyan", "running": "cyan", "succeeded": "green", "failed": "red",
    "rejected": "red", "skipped": "dim", "cancelled": "dim", "waiting": "yellow", "completed": "green",
    "ended": "yellow",
}  # fmt: skip


def colour_of(text: str) -> str | None:
    """The colour of a cell that is a state or a status (`ended, 2 open` is one); None for other texts."""
    state, comma, rest = text.partition(", ")
    if comma and not rest.endswith(" open"):
        return None
    return COLOURS.get(state)


_HEADER = "bold"
_GAP = 2
_INDENT = 2
_LEAST = 12
_MOST_PADDED = 60
"""Without a width, a longer text moves the cells behind it instead of making every other row as wide."""
_STACKED_LINES = 3
"""Lines of a text in a stacked row."""
_BLANK = ("", "-")
"""Cells that a stacked row leaves out."""


class Part(Enum):
    """Contents of a column, and what happens to it where there is little room."""

    ID = auto()
    """An argument of other commands; stays whole."""
    FACT = auto()
    """A state, a count or a time; whole or left out."""
    TEXT = auto()
    """Words; cut with an ellipsis, but `least` cells of them stay."""
    WHOLE = auto()
    """What a person decides on, such as a path; where it is cut, the whole follows on lines of its own."""


_SHRINK = (Part.TEXT, Part.WHOLE)


@dataclass(frozen=True)
class Column:
    """A column. Of those with `spare`, the lowest is left out first."""

    name: str
    part: Part
    is_number: bool = False
    spare: int | None = None
    least: int = _LEAST


def id_column(name: str) -> Column:
    """The numbers of missions or jobs."""
    return Column(name, Part.ID, is_number=True)


def name_column(name: str) -> Column:
    """Names that are arguments of commands."""
    return Column(name, Part.ID)


def number_column(name: str, *, spare: int | None = None) -> Column:
    """Counts or sizes."""
    return Column(name, Part.FACT, is_number=True, spare=spare)


def fact_column(name: str, *, spare: int | None = None) -> Column:
    """States or times."""
    return Column(name, Part.FACT, spare=spare)


def text_column(name: str, *, least: int = _LEAST, spare: int | None = None) -> Column:
    """Words."""
    return Column(name, Part.TEXT, spare=spare, least=least)


def whole_column(name: str) -> Column:
    """Paths of jobs that a person decides on."""
    return Column(name, Part.WHOLE)


@dataclass(frozen=True)
class Span:
    """Text in one style: a colour, `bold`, `dim` or none."""

    text: str
    style: str = ""


Line = Sequence[Span]


@dataclass(frozen=True)
class Table:
    """Rows of cells. What a terminal does not show is escaped; a cell that is a state has its colour."""

    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Add a row with a cell for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append([one_line(cell) for cell in cells])

    def lines(self, width: int | None) -> Iterator[Line]:
        """Lines of at most `width` terminal cells; uncut for None. Only an id can be wider, on a line of its own."""
        heading, rows = self.blocks(width)
        yield from [] if heading is None else [heading]
        for row in rows:
            yield from row

    def blocks(self, width: int | None) -> tuple[Line | None, Sequence[Sequence[Line]]]:
        """The heading, and the lines of each row; there is no heading where the columns do not fit."""
        widths = next(filter(None, (self._fit(wanted, width) for wanted in self._choices())), None)
        if widths is None:
            return None, [[*_stacked(row, self.columns, width or 0)] for row in self.rows]
        heading = _in_columns([column.name for column in self.columns], widths, self.columns, _HEADER)
        return heading, [[*self._lines_of(row, widths, width)] for row in self.rows]

    def _lines_of(self, row: Sequence[str], widths: Mapping[int, int], width: int | None) -> Iterator[Line]:
        cells = row if width is None else [cut(cell, widths.get(at, 0)) for at, cell in enumerate(row)]
        yield _in_columns(cells, widths, self.columns)
        yield from self._left(row, cells, width)

    def is_cut(self, width: int) -> bool:
        """True if `lines(width)` leaves out a part of a text that is not repeated whole."""
        widths = next(filter(None, (self._fit(wanted, width) for wanted in self._choices())), None)
        texts = [at for at, column in enumerate(self.columns) if column.part is Part.TEXT]
        return widths is None or any(
            cell_len(row[at]) > widths.get(at, 0) for row in self.rows for at in texts
        )

    def _left(self, row: Sequence[str], shown: Sequence[str], width: int | None) -> Iterator[Line]:
        """The texts of a row that have to be whole and were cut."""
        for at, column in enumerate(self.columns):
            if column.part is Part.WHOLE and row[at] != shown[at] and width is not None:
                yield from (
                    [Span(" " * _INDENT), Span(part)] for part in chop_cells(row[at], max(2, width - _INDENT))
                )

    def _choices(self) -> Iterator[Sequence[int]]:
        """Which columns to try: all of them, then ever fewer."""
        wanted = list(range(len(self.columns)))
        yield wanted
        spares = {column.spare: at for at, column in enumerate(self.columns) if column.spare is not None}
        for rank in sorted(spares):
            wanted = [at for at in wanted if at != spares[rank]]
            yield wanted

    def _fit(self, wanted: Sequence[int], width: int | None) -> dict[int, int] | None:
        """The width of each column; None if there is no room for the texts."""
        natural = {at: self._natural(at) for at in wanted}
        texts = {at: natural[at] for at in wanted if self.columns[at].part in _SHRINK}
        if width is None:
            return {**natural, **{at: min(most, _MOST_PADDED) for at, most in texts.items()}}
        taken = sum(natural.values()) - sum(texts.values()) + _GAP * (len(wanted) - 1)
        leasts = {at: min(most, self.columns[at].least) for at, most in texts.items()}
        shared = _share(width - taken, leasts, texts)
        return None if shared is None else {**natural, **shared}

    def _natural(self, at: int) -> int:
        return max(cell_len(cell) for cell in (self.columns[at].name, *(row[at] for row in self.rows)))


def print_table(table: Table, stream: TextIO) -> bool:
    """Print a table as wide as the terminal; uncut if `stream` is not one. One without rows prints nothing.

    Returns whether a text was cut.
    """
    if not table.rows:
        return False
    if not (stream.isatty() or os.environ.get("FORCE_COLOR")):
        stream.writelines(f"{plain(line)}\n" for line in table.lines(None))
        return False
    from lcp_engine.cli.console.output import make_console

    console = make_console(stream)
    shown = plain if console.no_color or console.color_system is None else _coloured
    width = console.width if stream.isatty() else None
    stream.writelines(f"{shown(line)}\n" for line in table.lines(width))
    return width is not None and table.is_cut(width)


def plain(line: Line) -> str:
    """The text of a line, without blanks at its end."""
    return "".join(span.text for span in line).rstrip(" ")


def wrap_words(text: str, width: int, hang: int = 0) -> list[str]:
    """`text` in lines of `width` terminal cells, broken at blanks where there are any; further ones hang by `hang`."""
    lines: list[str] = []
    line: str | None = None
    for word in text.split(" "):
        joined = word if line is None else f"{line} {word}"
        if cell_len(joined) <= width:
            line = joined
            continue
        lines += [line] if line and line.strip() else []
        indent = " " * hang if lines else ""
        *whole, rest = chop_cells(word, max(2, width - len(indent))) or [""]
        lines += [f"{indent}{part}" for part in whole]
        line = f"{indent}{rest}"
    return [*lines, line or ""]


def rows_in(text: str, width: int) -> list[str]:
    """The parts of `text`, to the last character, that fit `width` terminal cells.

    A row ends behind a blank, if there is one in its second half.
    """
    rows, at = list[str](), 0
    while at < len(text):
        row = chop_cells(text[at : at + width], width)[0]
        if at + len(row) < len(text) and text[at + len(row)] != " ":
            row = row[: row.rfind(" ", len(row) // 2) + 1] or row
        rows.append(row)
        at += len(row)
    return rows


def mark_of(stream: TextIO | None) -> str:
    """The mark before a planner's words: a bar, or a plain one where the terminal lacks it."""
    real = (
        sys.__stderr__ if stream is None or stream.encoding is None else stream
    )  # rich's stand-in has no encoding
    try:
        "▌".encode("ascii" if real is None else real.encoding)
    except (UnicodeEncodeError, LookupError):
        return "| "
    return "| " if os.environ.get("TERM") == "dumb" else "▌ "


def quoted(text: str, width: int | None, mark: str) -> list[str]:
    """A planner's words, each line behind a mark, also where one is broken: no line of them looks like one of ours."""
    room = None if width is None else max(2, width - cell_len(mark))
    lines = block(text).expandtabs(4).split("\n")
    rows = [row for line in lines for row in ([line] if room is None else wrap_words(line, room))]
    return [f"{mark}{row}".rstrip(" ") for row in rows]


def quoted_for(text: str, stream: TextIO, before: str = "") -> str:
    """Like `quoted`, as it is printed to a stream: broken where that is a terminal."""
    width = None
    if stream.isatty():
        width = terminal_width(stream)
    return "\n".join(quoted(text, width, f"{before}{mark_of(stream)}"))


def cut(text: str, width: int) -> str:
    """`text` in at most `width` terminal cells, with an ellipsis where it is cut."""
    if width <= 0:
        return ""
    return text if cell_len(text) <= width else f"{set_cell_size(text, max(0, width - 1)).rstrip(' ')}…"


def cut_between_words(text: str, width: int) -> str:
    """Like `cut`, but between two words, if one ends in the second half."""
    return text if cell_len(text) <= width else f"{rows_in(text, max(2, width - 1))[0].rstrip(' ')}…"


def end_of(text: str, width: int) -> str:
    """The end of `text` on one line of at most `width` terminal cells."""
    line = one_line(" ".join(text.split()))
    kept = line[-width:] if width > 0 else ""
    while cell_len(kept) + (kept != line) > max(width, 0) and kept:
        kept = kept[1:]
    return kept if kept == line or not kept else f"…{kept}"


def _coloured(line: Line) -> str:
    return "".join(_styled(span) for span in line).rstrip(" ")


def _styled(span: Span) -> str:
    match span.style:
        case "":
            return span.text
        case "bold":
            return click.style(span.text, bold=True)
        case "dim":
            return click.style(span.text, dim=True)
        case colour:
            return click.style(span.text, fg=colour)


def _share(room: int, leasts: Mapping[int, int], naturals: Mapping[int, int]) -> dict[int, int] | None:
    """Divide `room` among texts: none gets less than its least, and the longest give way first."""
    if sum(leasts.values()) > room:
        return None
    shares = dict(leasts)
    left = room - sum(shares.values())
    while left > 0 and (short := [at for at in shares if shares[at] < naturals[at]]):
        smallest = min(short, key=lambda at: (shares[at], -at))  # of equals the last: it says why
        shares[smallest] += 1
        left -= 1
    return shares


def _in_columns(
    cells: Sequence[str], widths: Mapping[int, int], columns: Sequence[Column], style: str | None = None
) -> Line:
    line: list[Span] = []
    for at, width in widths.items():
        text = cells[at]
        blank = " " * (width - cell_len(text))
        before, behind = (blank, "") if columns[at].is_number else ("", blank)
        gap = " " * _GAP if line else ""
        shown = Span(text, colour_of(text) or "" if style is None else style)
        line += [Span(gap + before), shown, Span(behind)]
    return line


def _stacked(row: Sequence[str], columns: Sequence[Column], width: int) -> Iterator[Line]:
    """A row without columns: its ids, its facts and then its texts, as many on a line as fit."""
    cells = [(column, cell) for column, cell in zip(columns, row, strict=True) if cell not in _BLANK]
    line: list[Span] = []
    is_full = False
    for column, cell in sorted(cells, key=lambda each: each[0].part in _SHRINK):
        label = "" if column is columns[0] or colour_of(cell) is not None else f"{column.name}: "
        lines = _wrapped(f"{label}{cell}", column.part, max(2, width - _INDENT))
        for text in lines:
            taken = sum(cell_len(span.text) for span in line)
            if line and (is_full or len(lines) > 1 or taken + _GAP + cell_len(text) > width):
                yield line
                line = []
            is_indented = bool(line) or (column is not columns[0] and cell_len(text) + _INDENT <= width)
            line.append(Span(" " * _INDENT if is_indented else ""))
            line.append(Span(text, colour_of(text) or ("bold" if column is columns[0] else "")))
        is_full = len(lines) > 1
    yield line


def _wrapped(text: str, part: Part, width: int) -> Sequence[str]:
    """A text in lines of `width`, at most `_STACKED_LINES`; an id in one line."""
    if part is Part.ID or cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}".lstrip(" ")
        if cell_len(word) > width:  # a path, or a language without blanks: it begins where there is room
            lines[-1:] = chop_cells(joined, width)
        else:
            lines[-1:] = [joined] if cell_len(joined) <= width else [lines[-1], word]
    left = lines[_STACKED_LINES - 1 :]
    return (
        lines
        if len(left) <= 1 or part is Part.WHOLE
        else [*lines[: _STACKED_LINES - 1], cut_between_words(" ".join(left), width)]
    )
