"""Talk to the person at the terminal: prompts, pager, editor and paste."""

from __future__ import annotations

import codecs
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from lcp_engine.cli.base import read_object
from lcp_engine.cli.output import make_console
from lcp_engine.core.safe_text import block, json_block
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from pydantic import JsonValue


LONGEST_LINE = 4095
"""Bytes of a line that a terminal passes on; it drops the rest of a longer one (`man 3 termios`, canonical mode)."""

_END = "\x04"
_ERASE = ("\x7f", "\b")
_ERASE_LINE = "\x15"
_WHOLE = ("}", "```")
"""What the last line of a reply ends with: an empty line behind it ends the paste."""


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


def edit_params(params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Other params than `params`, as a person made them in `$VISUAL` or `$EDITOR`.

    Raises `INVALID_ARGUMENT` for an editor that is not there or fails and for what is no JSON object,
    `INVALID_PARAMS` where the file was left empty or as it was.
    """
    edited = edit_text(params_text(params), "params.json")
    if not edited.strip():
        raise LcpError(
            ErrorCode.INVALID_PARAMS, "the edited file has to hold params; it is empty, nothing was changed"
        )
    revised = read_object(edited, "the edited file")
    if revised == params:
        raise LcpError(
            ErrorCode.INVALID_PARAMS,
            "the params have to be edited; they are as they were, nothing was changed",
        )
    return revised


def params_text(params: Mapping[str, JsonValue]) -> str:
    """Params as they stand in the editor."""
    return json_block(dict(params)) + "\n"


def edit_text(text: str, name: str) -> str:
    """What a person made of `text` in a file called `name`. Raises `INVALID_ARGUMENT` as `edit_params`."""
    command = _editor()
    with tempfile.TemporaryDirectory(prefix="lcp-") as place:  # private to its user
        file = Path(place) / name
        file.write_text(text, encoding="utf-8")
        with _terminal_lent():
            _run(command, file)
        return _read(file)


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "--edit needs $VISUAL or $EDITOR where there is no terminal; neither is set"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    try:
        command = shlex.split(named or "vi")
    except ValueError as error:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"the editor {named!r} is no command: {error}") from error
    if not command:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, "the editor has to be a command; $VISUAL or $EDITOR is blank"
        )
    return command


@contextmanager
def _terminal_lent() -> Iterator[None]:
    """Within, Ctrl-C is the editor's alone; afterwards the terminal is as it was, even where the editor died."""
    # A handler that does nothing, and not SIG_IGN, which the editor would inherit.
    handler = signal.signal(signal.SIGINT, lambda number, frame: None)
    modes = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if modes is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)


def _run(command: list[str], file: Path) -> None:
    try:
        code = subprocess.run(  # noqa: S603 -- the user's own editor
            [*command, str(file)], stdout=None if sys.stdout.isatty() else sys.stderr, check=False
        ).returncode
    except OSError as error:
        message = f"the editor {command[0]!r} could not be started: {error.strerror}; nothing was changed"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from error
    if code != 0:
        message = f"the editor {command[0]!r} has to end well; it ended with {code}, nothing was changed"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"the edited file cannot be read: {error}") from error


def read_paste(invitation: str) -> str:
    """What is typed or pasted, up to Ctrl-D, or to an empty line behind what looks like the end of a reply.

    A terminal that edits lines itself drops what is longer than 4,095 bytes, and a reply often is one line: here every
    byte arrives, from the moment that the invitation is seen. Raises `Closed` where the terminal is gone.
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
    """Add a character, or take back the last ones of the line."""
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
    """Whether an empty line, which begins here, ends the reply."""
    if text and text[-1] != "\n":
        return False
    return "".join(text[-200:]).rstrip().endswith(_WHOLE)


def _echo(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def _byte_by_byte(descriptor: int) -> Iterator[None]:
    """Within, the terminal neither edits nor echoes; Ctrl-C still interrupts."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
