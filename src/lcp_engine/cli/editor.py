"""Edit params in the editor that the user has chosen."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lcp_engine.cli.base import read_object
from lcp_engine.core.safe_text import json_block
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from pydantic import JsonValue


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
