"""Open a shell in what a command of a mission sees (`lcp shell`)."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.commands.completion import mission_ids
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err

_CHUNK = 64 * 1024
_SIZE_BYTES = 8
_PLAIN = "/bin/sh"


@click.command(
    "shell",
    cls=LcpCommand,
    examples=("lcp shell 3", "lcp shell 3 -- git status"),
)
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND]...")
@pass_invocation
def shell_command(invocation: Invocation, mission: int, command: Sequence[str]) -> int:
    """Open a shell in what a command of mission M sees.

    It has the root or the stage without the files that are masked, and no network. What you change is dropped at the
    end. With COMMAND, that is run in place of your shell. The exit code is that of the shell or COMMAND.
    """
    from lcp_engine.features.programs.mission_shell import Seat, run_in_view

    def begins(masked: int | None) -> None:
        hidden = "" if masked is None else f"; {masked:,} masked path{'' if masked == 1 else 's'}"
        if not invocation.quiet:
            print_err(f"mission {mission}: what you change here is dropped at the end{hidden}")

    with invocation.engine() as engine, _seat() as terminal:
        seat = Seat(
            (0, 1, 2) if terminal is None else terminal.theirs,
            terminal is not None,
            {"TERM": os.environ.get("TERM", "dumb")},
            begins,
            _wait if terminal is None else terminal.follow,
        )
        ended = run_in_view(engine.instance, mission, command or (_shell(),), seat)
    if ended.stopped is not None:
        print_err(f"{ended.stopped}, and was stopped")
        return Exit.FAILED
    return 128 + ended.signal if ended.exit_code is None and ended.signal else ended.exit_code or 0


def _shell() -> str:
    """The shell of the person, if it can be executed."""
    own = os.environ.get("SHELL", "")
    return own if own.startswith("/") and os.access(own, os.X_OK) else _PLAIN


def _wait(ended: int) -> None:
    select.select([ended], [], [])


@contextmanager
def _seat() -> Iterator[_Terminal | None]:
    """A terminal for a program behind that of this process, if it has one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield None
        return
    master, slave = os.openpty()
    try:
        yield _Terminal(master, slave)
    finally:
        os.close(master)


class _Terminal:
    """A terminal of its own for a program: what is typed here goes there, and what it writes there comes here.

    So the program can neither type into the terminal of the person nor leave it in a mode of its own.
    """

    def __init__(self, master: int, slave: int) -> None:
        self._master = master
        self.theirs = (slave, slave, slave)
        termios.tcsetattr(slave, termios.TCSANOW, termios.tcgetattr(0))
        self._resize()

    def follow(self, ended: int) -> None:
        """Carry both ways until the program has ended, or the terminal here is gone."""
        before = termios.tcgetattr(0)
        resized = signal.signal(signal.SIGWINCH, lambda number, frame: self._resize())
        try:
            tty.setraw(0, termios.TCSANOW)  # what was typed before is kept
            self._resize()
            self._carry(ended)
        finally:
            signal.signal(signal.SIGWINCH, resized)
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, before)

    def _carry(self, ended: int) -> None:
        waiting = select.poll()
        for one in (0, self._master, ended):
            waiting.register(one, select.POLLIN)
        while True:
            ready = {one for one, _ in waiting.poll()}
            if self._master in ready:
                if piece := _read(self._master):
                    _write(1, piece)
                else:
                    waiting.unregister(self._master)
            elif ended in ready:
                return
            if 0 in ready:
                typed = _read(0)
                if not typed:
                    return
                with suppress(OSError):  # nothing reads it any more
                    _write(self._master, typed)

    def _resize(self) -> None:
        with suppress(OSError):
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(_SIZE_BYTES))
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)


def _read(descriptor: int) -> bytes:
    """Take what is there; nothing at the end, and from a terminal that nobody has open."""
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""


def _write(descriptor: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]
