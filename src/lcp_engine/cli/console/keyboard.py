"""Read a line that a person types at the terminal after a question was drawn."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from rich.cells import cell_len

from lcp_engine.core.safe_text import block

if TYPE_CHECKING:
    from collections.abc import Sequence

END = "\x04"
"""Ctrl-D."""
_QUIET_SECONDS = 0.02
"""No person types the next key so soon: what comes within it is part of a paste, or was typed before the question."""
_BURST_SECONDS = 0.1
"""A burst has ended when nothing comes for so long; a key that is held down repeats faster."""
_MOST_SECONDS = 2.0
"""How long the end of a burst is awaited."""
_ERASE = ("\x7f", "\b")
_ERASE_LINE = "\x15"
_ERASE_WORD = "\x17"
_ERASING = (*_ERASE, _ERASE_LINE, _ERASE_WORD)
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])", re.DOTALL)
_LONGEST_SEQUENCE = 32
_UNDECODED = re.compile("[\ud800-\udfff]")


class Closed(Exception):
    """The person pressed Ctrl-D, or the terminal is gone."""


class _AskAgain(Exception):
    """Input that decides nothing. The message says why; it is empty after another program had the terminal."""


def read_typed(question: str, *, is_choice: bool, may_be_early: bool = False) -> str:
    """Draw the question and read the line that is typed after that, stripped. Raises `Closed`.

    What arrived before decides nothing; several lines at once neither, nor a paste at a choice. Any other paste, in a
    terminal that marks it, is text: Enter sends it. With `may_be_early` lines that were typed before are answers too.
    """
    with _Keyboard(sys.stdin.fileno(), is_question=True, is_lone=not may_be_early) as keyboard:
        while True:
            try:
                if not may_be_early and keyboard.discard():
                    echo("  what was typed before this question is not used\n")
                echo(question)
                return keyboard.read_line(is_choice=is_choice).strip()
            except _AskAgain as again:
                echo(f"\n  {again}\n" if str(again) else "\n")


@contextmanager
def unedited() -> Iterator[Callable[[], str]]:
    """The terminal without line editing and echo; yields what waits for more characters, that arrive from now on."""
    with _Keyboard(sys.stdin.fileno(), is_question=False) as keyboard:

        def read() -> str:
            try:
                return _UNDECODED.sub("\ufffd", keyboard.read())
            except _AskAgain:  # a paste goes on after Ctrl-Z
                return ""

        keyboard.discard()
        yield read


def take(text: list[str], character: str) -> None:
    """Add a character, or erase the last one, the last word or the line."""
    if character not in _ERASING:
        text.append(character)
        echo(character if character == "\t" else block(character))
        return
    has_word = False
    while text and text[-1] != "\n" and not (has_word and text[-1].isspace()):
        has_word = character == _ERASE_WORD and (has_word or not text[-1].isspace())
        echo("\b \b" * cell_len(block(text.pop())))
        if character in _ERASE:
            break


def echo(text: str) -> None:
    """Show a question, or what is typed."""
    sys.stderr.write(text)
    sys.stderr.flush()


class _Keyboard:
    """A terminal without line editing and echo, as long as a question is asked. Ctrl-C and Ctrl-Z work as ever."""

    def __init__(self, descriptor: int, *, is_question: bool, is_lone: bool = True) -> None:
        self._descriptor = descriptor
        self._is_question = is_question
        self._marks_pastes = is_question and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
        self._arrived = ""
        self._is_lone = is_lone
        """Whether a line counts only if none follows at once; else what follows is left to the next question."""
        self._before = self._own = termios.tcgetattr(descriptor)
        self._received: set[int] = set()
        self._caught: Sequence[signal.Signals] = ()

    def __enter__(self) -> Self:
        self._begin()
        self._catch_signals()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._release_signals()
        self._finish()

    def discard(self) -> bool:
        """Drop what has arrived, a burst to its end; whether anything had. Raises `Closed` if it was only Ctrl-D."""
        dropped, seconds, ends = self._arrived, _QUIET_SECONDS, time.monotonic() + _MOST_SECONDS
        while time.monotonic() < ends and self._waits_for_more(seconds):
            dropped, seconds = dropped + self._receive(), _BURST_SECONDS
        self._decoder.reset()
        self._arrived = ""
        if dropped and not dropped.strip("\x00\x04"):  # the line editing of the kernel keeps Ctrl-D as NUL
            echo("\n")
            raise Closed
        return bool(dropped)

    def read(self) -> str:
        """Wait for characters; those that have arrived. Raises `Closed` if the terminal is gone."""
        while not self._arrived:
            if self._waits_for_more(None):
                self._arrived = self._receive()
        arrived, self._arrived = self._arrived, ""
        return arrived

    def read_line(self, *, is_choice: bool) -> str:
        """The line that is typed next. Raises `_AskAgain` for what decides nothing, `Closed` at Ctrl-D."""
        text: list[str] = []
        while (key := self._key()) not in ("\n", "\r"):
            if key == END and not text:
                echo("\n")
                raise Closed
            if key == _PASTE_BEGINS:
                pasted = self._paste()
                if is_choice:
                    raise _AskAgain("a paste decides nothing; type the answer")
                for character in filter(_is_text, pasted):
                    take(text, character)
            elif _is_text(key) or key in _ERASING:
                take(text, key)
        if self._is_lone and (self._arrived or self._waits_for_more(_QUIET_SECONDS)):
            raise _AskAgain("several lines came at once, as from a paste; none of them is used")
        if _UNDECODED.search("".join(text)):
            raise _AskAgain("this is not UTF-8; type it again")
        echo("\n")
        return "".join(text)

    def _key(self) -> str:
        """The next character, or `_PASTE_BEGINS`; other sequences, such as those of arrows, are left out."""
        while True:
            self._arrived = self.read()
            if self._arrived[0] != "\x1b":
                key, self._arrived = self._arrived[0], self._arrived[1:]
                return key
            while not (found := _SEQUENCE.match(self._arrived)) and len(self._arrived) < _LONGEST_SEQUENCE:
                if not self._waits_for_more(_QUIET_SECONDS):
                    break
                self._arrived += self._receive()
            sequence = found[0] if found else self._arrived[:1]
            self._arrived = self._arrived[len(sequence) :]
            if sequence == _PASTE_BEGINS:
                return sequence

    def _paste(self) -> str:
        """Read a paste to its end."""
        while _PASTE_ENDS not in self._arrived:
            if self._waits_for_more(None):
                self._arrived += self._receive()
        pasted, _, self._arrived = self._arrived.partition(_PASTE_ENDS)
        return pasted.replace("\r\n", "\n").replace("\r", "\n")

    def _receive(self) -> str:
        """Text that has arrived. Raises `Closed` if the terminal is gone."""
        try:
            arrived = os.read(self._descriptor, 65536 if self._is_lone else 1)
        except OSError:
            arrived = b""
        if not arrived:
            echo("\n")
            raise Closed
        return self._decoder.decode(arrived)

    def _waits_for_more(self, seconds: float | None) -> bool:
        """Wait until something has arrived, or raise what a signal raises; False if nothing has in time.

        A signal that arrives a moment before a blocking read would be noticed only after it.
        """
        woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        before = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        try:
            self._heed_signals()
            ready = select.select([self._descriptor, woken], [], [], seconds)[0]
        finally:
            signal.set_wakeup_fd(before)
            os.close(woken)
            os.close(wakes)
        self._heed_signals()
        return self._descriptor in ready

    # -- Modes and signals

    def _begin(self) -> None:
        self._before = termios.tcgetattr(self._descriptor)
        own = termios.tcgetattr(self._descriptor)
        own[3] &= ~(termios.ECHO | termios.ICANON)
        own[0] &= ~(termios.ICRNL if self._is_question else 0)  # a paste has CR LF
        own[6][termios.VMIN], own[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, own)
        self._own = termios.tcgetattr(self._descriptor)
        if self._marks_pastes:
            echo("\x1b[?2004h")

    def _finish(self) -> None:
        if self._marks_pastes:
            echo("\x1b[?2004l")
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def _catch_signals(self) -> None:
        both = (signal.SIGTSTP, signal.SIGCONT)
        self._caught = [number for number in both if signal.getsignal(number) is signal.SIG_DFL]
        for number in self._caught:
            signal.signal(number, self._note)

    def _release_signals(self) -> None:
        for number in self._caught:
            signal.signal(number, signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received.add(number)

    def _heed_signals(self) -> None:
        """Stop at Ctrl-Z. Raises `_AskAgain` if another program has had the terminal since."""
        if signal.SIGTSTP in self._received:
            self._finish()
            self._release_signals()
            signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # here it stops
            self._received.clear()
            self._catch_signals()
        elif signal.SIGCONT in self._received:
            self._received.clear()
            if termios.tcgetattr(self._descriptor) == self._own:
                return
        else:
            return
        self._begin()
        raise _AskAgain


def _is_text(character: str) -> bool:
    return character in "\t\n" or not (character < " " or "\x7f" <= character <= "\x9f")
