"""Run `lcp` on its own terminal, as a person would use it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


MOMENT_SECONDS = 2.0
"""Between the two parts of a frame, on a busy machine."""


class Terminal:
    """`lcp` with a controlling terminal, and what that shows."""

    def __init__(
        self,
        lcp: Lcp,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        size: tuple[int, int] = (24, 120),
    ) -> None:
        self.master, slave = pty.openpty()
        self.resize(*size)
        self.process = lcp.attach(
            slave, *arguments, environment=_of_terminal(lcp.environment, environment or {})
        )
        os.close(slave)
        self.shown = ""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        os.close(self.master)

    def expect(self, text: str) -> str:
        """Read until `text` is shown; returns and forgets what was shown before it."""
        ends = _soon()
        while text not in self.shown:
            more = self._read(ends)
            assert more, f"{text!r} is not in {self.shown!r}"
            self.shown += more
        before, _, self.shown = self.shown.partition(text)
        return before

    def see(self, text: str) -> str:
        """Like `expect`, until the whole frame is there that shows `text`: a key that comes before decides nothing."""
        before, ends = self.expect(text), time.monotonic() + MOMENT_SECONDS
        while select.select([self.master], [], [], MOMENT_SECONDS / 4)[0] and time.monotonic() < ends:
            self.shown += self._read(_soon())
        return before

    def answer(self, text: str) -> None:
        self.type(f"{text}\n")

    def type(self, keys: str) -> None:
        """Type keys, and read the output meanwhile, so that neither side waits for the other."""
        left, ends = keys.encode(), _soon()
        while left:
            reads, writes, _ = select.select([self.master], [self.master], [], PATIENCE_SECONDS)
            assert reads or writes, f"it hangs after {self.shown!r}"
            if reads:
                self.shown += self._read(ends)
            if writes:
                left = left[os.write(self.master, left[:1024]) :]

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self) -> int:
        """Read to the end; the exit code."""
        ends = _soon()
        while more := self._read(ends):
            self.shown += more
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self, ends: float) -> str:
        """The next output, which has to come by then: also a program that goes on drawing may hang."""
        left = ends - time.monotonic()
        assert left > 0, f"it goes on, and shows {self.shown!r}"
        assert select.select([self.master], [], [], left)[0], f"it hangs after {self.shown!r}"
        try:
            read = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            read = b""
        # Without text, it may have been the first bytes of a character.
        return self._decode(read) or (self._read(ends) if read else "")


def _soon() -> float:
    return time.monotonic() + PATIENCE_SECONDS


def _of_terminal(inherited: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Width and height come from the terminal; the test chooses colours."""
    theirs = ("COLUMNS", "LINES", "PAGER", "LESS", "EDITOR", "VISUAL")
    return {
        **{name: value for name, value in inherited.items() if name not in theirs}, "TERM": "xterm", **given,
    }  # fmt: skip
