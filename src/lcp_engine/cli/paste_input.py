"""Read what a person pastes into the terminal, however long its lines are."""

from __future__ import annotations

import codecs
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from lcp_engine.cli.prompt_io import Closed
from lcp_engine.core.safe_text import block

_END = "\x04"
_ERASE = ("\x7f", "\b")
_ERASE_LINE = "\x15"
_WHOLE = ("}", "```")
"""What the last line of a reply ends with: an empty line behind it ends the paste."""


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
