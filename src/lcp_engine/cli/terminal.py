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
    else:
        click.echo_via_pager(text, color=not console.no_color)


def _height(text: str, width: int) -> int:
    """Lines on a terminal of that width; escape sequences count as visible."""
    return sum(1 + len(line) // max(1, width) for line in text.splitlines())


def edit_params(params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Have the person edit `params` in `$VISUAL` or `$EDITOR`.

    Raises `INVALID_ARGUMENT` if the editor is missing or fails or the file is not a JSON object, `INVALID_PARAMS` if
    the file is empty or unchanged.
    """
    edited = edit_text(params_text(params), "params.json")
    if not edited.strip():
        raise LcpError(ErrorCode.INVALID_PARAMS, "the edited file is empty; nothing was changed")
    revised = read_object(edited, "the edited file")
    if revised == params:
        raise LcpError(
            ErrorCode.INVALID_PARAMS,
            "the params are unchanged; nothing was done",
        )
    return revised


def params_text(params: Mapping[str, JsonValue]) -> str:
    """Params as the editor shows them."""
    return json_block(dict(params)) + "\n"


def edit_text(text: str, name: str) -> str:
    """Have the person edit `text` in a file called `name`. Raises `INVALID_ARGUMENT` like `edit_params`.

    click.edit reports no exit code, lets Ctrl-C end this process, and gives the editor a stdout that is for data.
    """
    command = _editor()
    with tempfile.TemporaryDirectory(prefix="lcp-") as place:  # private to its user
        file = Path(place) / name
        file.write_text(text, encoding="utf-8")
        with _editor_has_terminal():
            _run(command, file)
        return _read(file)


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "without a terminal --edit needs $VISUAL or $EDITOR; neither is set"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    try:
        command = shlex.split(named or "vi")
    except ValueError as error:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, f"the editor {named!r} is not a command: {error}"
        ) from error
    if not command:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, "$VISUAL or $EDITOR is blank; a command is expected")
    return command


@contextmanager
def _editor_has_terminal() -> Iterator[None]:
    """Leave Ctrl-C to the editor, and restore the terminal's modes afterwards."""
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
        message = f"the editor {command[0]!r} ended with {code}; nothing was changed"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"the edited file cannot be read: {error}") from error


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
