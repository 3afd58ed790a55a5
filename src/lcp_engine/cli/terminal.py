"""Talk to the person at the terminal: prompts, pager and paste."""

from __future__ import annotations

import codecs
import os
import select
import shlex
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lcp_engine.cli.output import make_console
from lcp_engine.core.safe_text import block

LONGEST_LINE = 4095
"""Bytes of a line that a terminal delivers; it drops the rest (`man 3 termios`, canonical mode)."""

_END = "\x04"
_ERASE = ("\x7f", "\b")
_ERASE_LINE = "\x15"
_WHOLE = ("}", "```")
"""Ends of a complete reply: an empty line after one of them ends the paste."""


class Closed(Exception):
    """The person pressed Ctrl-D, or the terminal is gone."""


@dataclass(frozen=True)
class Choice:
    """A possible answer: `word` or its beginning. `more` completes the word in the legend."""

    word: str
    more: str = ""

    @property
    def legend(self) -> str:
        return f"[{self.word[0]}]{self.word[1:]}{self.more}"


def print_line(text: str | Text) -> None:
    """Print lines on stderr; the terminal wraps them."""
    make_console(sys.stderr).print(text)


def read_line(question: str) -> str:
    """Read a typed line, stripped. Raises `Closed` at the end of the input (Ctrl-D)."""
    while True:
        sys.stderr.write(question)
        sys.stderr.flush()
        try:
            if sys.stdin.isatty():
                _await_line()
            line = sys.stdin.readline()
        except UnicodeDecodeError:
            print_line("  this is not UTF-8; type it again")
            continue
        except OSError:  # the terminal is gone
            line = ""
        if not line:
            sys.stderr.write("\n")
            raise Closed
        if len(line.encode(errors="replace")) >= LONGEST_LINE:
            print_line(f"  a terminal delivers at most {LONGEST_LINE} bytes of a line; use a shorter text")
            continue
        return line.strip()


def _await_line() -> None:
    """Wait until the terminal has a line, or raise what a signal raises.

    A signal that arrives a moment before a blocking read would be noticed only after it.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        while sys.stdin not in select.select([sys.stdin, woken], [], [])[0]:
            os.read(woken, 1)
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wakes)


def choose(question: str, choices: Sequence[Choice]) -> str:
    """Ask until the answer is one of `choices`; returns its word. Raises `Closed`."""
    letters = ",".join(choice.word[0] for choice in choices)
    while True:
        answer = read_line(f"{question} [{letters},?] ").lower()
        found = [choice.word for choice in choices if answer and choice.word.startswith(answer)]
        if found:
            return found[0]
        print_legend(choices)


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
    descriptor = sys.stdin.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with _byte_by_byte(descriptor):
        _echo(f"{invitation}\n")
        while True:
            more = os.read(descriptor, 65536)
            if not more:
                raise Closed
            for character in decoder.decode(more):
                if character == _END or (character == "\n" and _is_whole(text)):
                    _echo("\n")
                    return "".join(text)
                _take(text, character)


def _take(text: list[str], character: str) -> None:
    """Add a character, or erase the last one or the line."""
    if character in _ERASE or character == _ERASE_LINE:
        while text and text[-1] != "\n":
            text.pop()
            _echo("\b \b")
            if character in _ERASE:
                break
        return
    text.append(character)
    _echo(character if character == "\t" else block(character))


def _is_whole(text: list[str]) -> bool:
    """Whether an empty line at this point ends the reply."""
    if text and text[-1] != "\n":
        return False
    return "".join(text[-200:]).rstrip().endswith(_WHOLE)


def _echo(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def _byte_by_byte(descriptor: int) -> Iterator[None]:
    """Switch off line editing and echo; Ctrl-C still interrupts."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
