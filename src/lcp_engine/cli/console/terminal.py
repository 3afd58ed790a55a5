"""Talk to the person at the terminal: prompts, pager and paste."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lcp_engine.cli.console.keyboard import END, Closed, echo, read_typed, take, unedited
from lcp_engine.cli.console.output import make_console
from lcp_engine.cli.tables import quoted_for

_CONTINUED = "¦"
_WHOLE = ("}", "```")
"""Ends of a complete reply: an empty line after one of them ends the paste."""


@dataclass(frozen=True)
class Choice:
    """A possible answer: `word` or its beginning. `more` completes the word in the legend."""

    word: str
    more: str = ""

    @property
    def legend(self) -> str:
        return f"[{self.word[0]}]{self.word[1:]}{self.more}"


def print_line(text: str | Text) -> None:
    """Print lines on stderr. Where one is too long, its further rows begin with `¦`."""
    console = make_console(sys.stderr)
    lines = (text if isinstance(text, Text) else Text(text)).split("\n", allow_blank=True)
    for line in lines:
        rows = (
            [*line.wrap(console, max(2, console.width - 1))]
            if cell_len(line.plain) > console.width
            else [line]
        )
        for number, row in enumerate(rows):
            console.print(Text(_CONTINUED).append_text(row) if number else row)


def print_words(text: str) -> None:
    """Print a planner's words on stderr, each line of them marked."""
    make_console(sys.stderr).print(Text(quoted_for(text, sys.stderr)))


def read_line(question: str, *, may_be_early: bool = False) -> str:
    """Read a line that is typed after the question was drawn, or with `may_be_early` before; stripped.

    Raises `Closed` at the end of the input (Ctrl-D).
    """
    return _read(question, is_choice=False, may_be_early=may_be_early)


def _read(question: str, *, is_choice: bool, may_be_early: bool = False) -> str:
    if sys.stdin.isatty():
        return read_typed(question, is_choice=is_choice, may_be_early=may_be_early)
    echo(question)
    line = sys.stdin.readline()
    if not line:
        echo("\n")
        raise Closed
    return line.strip()


def choose(question: str, choices: Sequence[Choice]) -> str:
    """Ask until the answer is one of `choices`; returns its word. Raises `Closed`."""
    letters = ",".join(choice.word[0] for choice in choices)
    while True:
        answer = _read(f"{question} [{letters},?] ", is_choice=True).lower()
        found = [choice.word for choice in choices if answer and choice.word.startswith(answer)]
        if found:
            return found[0]
        print_legend(choices)


def confirm(question: str) -> bool:
    """Ask for yes or no; nothing typed is a no. Raises `Closed`."""
    while True:
        answer = _read(f"{question} [y/N]: ", is_choice=True).lower()
        if "yes".startswith(answer) or "no".startswith(answer):
            return answer.startswith("y")


def print_legend(choices: Sequence[Choice]) -> None:
    """Print the possible answers, as many on a line as fit."""
    width = make_console(sys.stderr).width
    lines = [""]
    for choice in choices:
        longer = f"{lines[-1]}  {choice.legend}"
        lines[-1:] = [longer] if len(longer) <= width or not lines[-1] else [lines[-1], f"  {choice.legend}"]
    print_line("\n".join(lines))


def page(show: Callable[[Console], None]) -> None:
    """Print what `show` prints, in a pager if it is longer than the terminal."""
    if not sys.stdout.isatty():
        show(make_console(sys.stderr))
        return
    console = make_console(sys.stdout)
    with console.capture() as captured:
        show(console)
    text = captured.get()
    if _height(text, console.width) < console.height:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with _pager_settings() as colours:
        click.echo_via_pager(text, color=colours)


@contextmanager
def _pager_settings() -> Iterator[bool | None]:
    """Let `less` show colours, as git does, unless its user has chosen its options; yields what click gets as `color`.

    With True, click passes colours even to a `less` that shows their codes; with None, it looks at the options of
    `less`, and takes the colours from what any other pager gets.
    """
    before = {name: os.environ.get(name) for name in ("LESS", "PAGER")}
    os.environ.setdefault("LESS", "-R")
    try:
        command = shlex.split(before["PAGER"] or "")
    except ValueError:  # an unbalanced quote, for which click would raise the same
        command = []
        del os.environ["PAGER"]
    try:
        yield None if not command or Path(command[0]).name == "less" else True
    finally:
        os.environ.update({name: value for name, value in before.items() if value is not None})
        if before["LESS"] is None:
            del os.environ["LESS"]


def _height(text: str, width: int) -> int:
    """Lines on a terminal of that width."""
    return sum(max(1, -(-cell_len(line) // max(1, width))) for line in click.unstyle(text).splitlines())


def read_paste(invitation: str) -> str:
    """Read typed or pasted text up to Ctrl-D, or up to an empty line after what looks like the end of a reply.

    In canonical mode a terminal drops what exceeds 4,095 bytes of a line, and a reply often is one line; so canonical
    mode is off before `invitation` is shown. Raises `Closed` if the terminal is gone.
    """
    text: list[str] = []
    with unedited() as read:
        echo(f"{invitation}\n")
        while True:
            for character in read():
                if character == END or (character == "\n" and _is_whole(text)):
                    echo("\n")
                    return "".join(text)
                take(text, character)


def _is_whole(text: list[str]) -> bool:
    """True if an empty line at this point ends the reply."""
    if text and text[-1] != "\n":
        return False
    return "".join(text[-200:]).rstrip().endswith(_WHOLE)
