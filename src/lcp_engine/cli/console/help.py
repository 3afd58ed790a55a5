"""Format the help of commands for any width: no word is broken, and examples stay whole."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

from lcp_engine.cli.console.wrapping import terminal_width, wrap_ours

_LEAST = 24
"""Room for the text beside a term; with less, it stands below the term."""
_NARROWEST = 20
_BELOW = 4
"""Blanks before a text that is below its term."""


class HelpFormatter(click.HelpFormatter):
    """Like click's, which takes 50 columns at least, breaks long words, and cuts the texts of commands."""

    def __init__(self, width: int | None = None, max_width: int | None = None) -> None:
        columns = min(terminal_width(), max_width or 80)
        # Two blanks at the edge, as click has them, where they can be spared.
        super().__init__(width=max(_NARROWEST, columns - 2 * (columns > 60)) if width is None else width)

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage; arguments that do not fit beside the command are below it."""
        first = f"{'Usage: ' if prefix is None else prefix}{prog}"
        beside = len(first) + 1
        hang = beside if self.width - beside >= _LEAST else 2 * _BELOW
        self._write_lines(wrap_ours(f"{first} {args}".rstrip(" "), self.width, hang))

    def write_text(self, text: str) -> None:
        """Write paragraphs, wrapped between words."""
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip())]
        for number, paragraph in enumerate(paragraphs):
            self._write_lines([""] * (number > 0))
            self._write_lines(wrap_ours(paragraph, self.width - self.current_indent), self.current_indent)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms with their texts beside them, or below them where the room beside them is small."""
        rows = [*rows]
        first = min(max(len(term) for term, _ in rows), col_max) + col_spacing
        room = self.width - self.current_indent - first
        is_below = room < _LEAST or any(
            len(line) > room for _, text in rows for line in wrap_ours(text, room)
        )
        at = self.current_indent + (_BELOW if is_below else first)
        for term, text in rows:
            lines = wrap_ours(text, self.width - at) if text else []
            if lines and not is_below and len(term) <= first - col_spacing:
                self._write_lines([f"{term:<{first}}{lines.pop(0)}"], self.current_indent)
            else:
                self._write_lines([term], self.current_indent)
            self._write_lines(lines, at)

    def write_example(self, example: str) -> None:
        """Write an example. Its command stays on one line, whole, so that it can be copied."""
        room = self.width - self.current_indent
        command, *said = re.split(r" {2,}", example, maxsplit=1)
        if not said or len(example) <= room:
            self._write_lines([example], self.current_indent)
            return
        self._write_lines([command], self.current_indent)
        self._write_lines(wrap_ours(said[0], room - _BELOW), self.current_indent + _BELOW)

    def _write_lines(self, lines: Iterable[str], indent: int = 0) -> None:
        for line in lines:
            self.write(f"{' ' * indent}{line}\n" if line else "\n")
