"""Let the person edit a text in an editor of their choice; an edit that cannot be used is kept."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lcp_engine.core.safe_text import json_block
from lcp_engine.errors import GENERAL, ErrorCode, LcpError

if TYPE_CHECKING:
    from pydantic import JsonValue

_EDITORS = ("sensible-editor", "vi", "vim", "nano")
"""What is started if the user names no editor: the first that is installed."""


class Draft:
    """A text to edit, in a private file. It stays there, whatever happens, until it is discarded."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.given = text
        self._name = name
        self._file: Path | None = None

    def edit(self) -> str:
        """Start the editor on the text; returns what it leaves. Raises `INVALID_ARGUMENT` if that did not work.

        click.edit reports no exit code, lets Ctrl-C end this process, and gives the editor a stdout that is for data.
        """
        command = _editor()
        file = self._place()
        self._write(file)
        with _editor_has_terminal():
            refused = _run(command, file)
        self.text = self._read()
        if refused is not None:
            raise refused
        return self.text

    @property
    def is_changed(self) -> bool:
        """True if the person has written something."""
        return self.text != self.given and bool(self.text.strip())

    @property
    def kept(self) -> Path | None:
        """The file with what the person has written; None if there is nothing to keep."""
        return self._file if self.is_changed else None

    def kept_after(self, refused: LcpError) -> LcpError:
        """The error, with the file that keeps the edit."""
        if self.kept is None:
            return refused
        message = f"{refused}; your edit is kept in {self.kept}"
        return LcpError(refused.code, message, refused.failed.details, refused.failed.advice)

    def take(self, text: str) -> None:
        """Keep a text that was written elsewhere, to be edited next."""
        self.text = text
        self._write(self._place())

    def discard(self) -> None:
        """Remove the file: its text was used, or there is nothing in it."""
        if self._file is not None:
            shutil.rmtree(self._file.parent, ignore_errors=True)
            self._file = None

    def leave(self) -> None:
        """Discard the file unless there is something to keep."""
        if not self.is_changed:
            self.discard()

    def _place(self) -> Path:
        if self._file is None:
            self._file = Path(tempfile.mkdtemp(prefix="lcp-")) / self._name  # private to its user
        return self._file

    def _write(self, file: Path) -> None:
        file.write_bytes(self.text.encode())

    def _read(self) -> str:
        file = self._place()
        try:
            # A pipe or a device would never end, and line ends stay as they are.
            if file.exists() and not file.is_file():
                raise OSError("it is not a file any more")
            return file.read_bytes().decode()
        except FileNotFoundError as error:
            file.unlink(missing_ok=True)  # a link that leads nowhere
            self._write(file)
            message = "the editor removed the file that it was given; nothing was changed"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from error
        except (OSError, UnicodeDecodeError) as error:
            self._file = None  # the file that is named here stays
            message = f"the edited file {file} cannot be read: {error}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from error


def params_text(params: Mapping[str, JsonValue]) -> str:
    """Params as the editor shows them."""
    return json_block(dict(params)) + "\n"


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "without a terminal --edit needs $VISUAL or $EDITOR; neither is set"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    if named is None:
        named = next((name for name in _EDITORS if shutil.which(name)), None)
    if named is None:
        message = f"no editor is installed ({', '.join(_EDITORS)}); set $VISUAL or $EDITOR"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    try:
        command = shlex.split(named)
    except ValueError as error:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, f"the editor {named!r} is not a command: {error}"
        ) from error
    if not command:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, "$VISUAL or $EDITOR is blank; a command is expected", advice=GENERAL
        )
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


def _run(command: list[str], file: Path) -> LcpError | None:
    """Run the editor until it ends; what did not work, if anything."""
    try:
        code = subprocess.run(  # noqa: S603 -- the user's own editor
            [*command, str(file)], stdout=None if sys.stdout.isatty() else sys.stderr, check=False
        ).returncode
    except OSError as error:
        message = f"the editor {command[0]!r} could not be started: {error.strerror}; nothing was changed"
        return LcpError(ErrorCode.INVALID_ARGUMENT, message)
    if code != 0:
        message = f"the editor {command[0]!r} ended with {code}; nothing was changed"
        return LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return None
