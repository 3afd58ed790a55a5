"""Speak with a person at the terminal, a line at a time; stdout stays free for data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
from rich.console import Console
from rich.text import Text

from lcp_engine.cli.output import make_console

LONGEST_LINE = 4095
"""Bytes of a line that a terminal passes on; it drops the rest of a longer one (`man 3 termios`, canonical mode)."""


class Closed(Exception):
    """The person has left the dialogue."""


@dataclass(frozen=True)
class Choice:
    """What can be answered: `word`, or a beginning of it; `more` says what the word alone does not."""

    word: str
    more: str = ""

    @property
    def legend(self) -> str:
        return f"[{self.word[0]}]{self.word[1:]}{self.more}"


def say(text: str | Text) -> None:
    """Show lines; where they are longer than the terminal, it breaks them itself."""
    make_console(sys.stderr).print(text)


def read_line(question: str) -> str:
    """A line that is typed, without the white space around it. Raises `Closed` at the end of the input (Ctrl-D)."""
    while True:
        sys.stderr.write(question)
        sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError:
            say("  that is no UTF-8; type it again")
            continue
        except OSError:  # the terminal is gone
            line = ""
        if not line:
            sys.stderr.write("\n")
            raise Closed
        if len(line.encode(errors="replace")) >= LONGEST_LINE:
            say(f"  a terminal passes on at most {LONGEST_LINE} bytes of a line; say it shorter")
            continue
        return line.strip()


def choose(question: str, choices: Sequence[Choice]) -> str:
    """The word of the choice that is answered; asked again, with a legend, until it is one. Raises `Closed`."""
    letters = ",".join(choice.word[0] for choice in choices)
    while True:
        answer = read_line(f"{question} [{letters},?] ").lower()
        found = [choice.word for choice in choices if answer and choice.word.startswith(answer)]
        if found:
            return found[0]
        say_legend(choices)


def say_legend(choices: Sequence[Choice]) -> None:
    """What can be answered, as many on a line as fit."""
    width = make_console(sys.stderr).width
    lines = [""]
    for choice in choices:
        longer = f"{lines[-1]}  {choice.legend}"
        lines[-1:] = [longer] if len(longer) <= width or not lines[-1] else [lines[-1], f"  {choice.legend}"]
    say("\n".join(lines))


def page(show: Callable[[Console], None]) -> None:
    """Show something, in a pager where it is longer than the terminal."""
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
    else:
        click.echo_via_pager(text, color=not console.no_color)


def _height(text: str, width: int) -> int:
    """Lines on a terminal of that width; escape sequences count as if they were seen."""
    return sum(1 + len(line) // max(1, width) for line in text.splitlines())
