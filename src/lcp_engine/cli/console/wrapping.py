"""Break sentences of `lcp` into lines as wide as a terminal. Light: help is printed with it."""

from __future__ import annotations

import os
import sys
from typing import TextIO

_OF_NO_TERMINAL = 80
_HANG = 4
_NO_BREAK = "\xa0"
"""A blank at which no line is broken; a text that is safe to print names those of its own."""


def wrap_ours(text: str, width: int, hang: int = 0) -> list[str]:
    """Like `wrap_words`, for sentences of `lcp` itself. A command in backticks stays whole, and so does a long word.

    What is longer than a line has one of its own, from its edge to wherever the terminal goes on, so that it can be
    copied.
    """
    parts = text.split("`")
    parts[1:-1:2] = [part.replace(" ", _NO_BREAK) for part in parts[1:-1:2]]
    lines: list[str] = []
    for word in "`".join(parts).split(" "):
        indent = " " * hang if lines else ""
        if lines and _cells(lines[-1]) + 1 + _cells(word) <= width:
            lines[-1] += f" {word}"
        elif lines and not lines[-1].strip():
            lines[-1] += word
        elif _cells(word) > width - len(indent):
            lines.append(word)
        else:
            lines.append(f"{indent}{word}")
    return [line.replace(_NO_BREAK, " ").rstrip(" ") for line in lines]


def fitted(text: str, stream: TextIO) -> str:
    """`text` as it is printed to a stream: on a terminal, lines that are too long are broken between words."""
    if not stream.isatty():
        return text
    width = terminal_width(stream)
    rows: list[str] = []
    for line in text.split("\n"):
        # What has colours was fitted before; a command may stand on a line of its own.
        is_whole = (
            "\x1b" in line
            or _cells(line) <= width
            or (line.lstrip(" ").startswith("lcp ") and line[:1] == " ")
        )
        rows += [line] if is_whole else wrap_ours(line, width, hang_of(line, width))
    return "\n".join(rows)


def hang_of(line: str, width: int) -> int:
    """Blanks before the further rows of a line: further in than the lines around it, so that none looks like one."""
    return min(len(line) - len(line.lstrip(" ")) + _HANG, width // 2)


def terminal_width(stream: TextIO | None = None) -> int:
    """Columns as the environment states them, else those of the terminal `stream` or stdout, else 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return (
            os.get_terminal_size((stream or sys.__stdout__ or sys.stdout).fileno()).columns or _OF_NO_TERMINAL
        )
    except (ValueError, OSError):  # closed, or no terminal
        return _OF_NO_TERMINAL


def _cells(text: str) -> int:
    """Terminal cells of a text."""
    text = text.replace(_NO_BREAK, " ")
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
