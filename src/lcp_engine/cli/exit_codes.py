"""Give every end its exit code (CONTRACT.md, command line)."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a script may branch on."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    LIMIT = 4
    CONFLICT = 5
    INTERRUPTED = 130


def exit_of_mission(status: str, outcome: str | None) -> Exit:
    """The exit code of a mission that nobody works on any more."""
    match status:
        case "completed":
            return Exit.DONE
        case "running" | "waiting":
            return Exit.WAITING
        case "failed" if outcome is not None and (outcome.startswith("limit:") or outcome == "no_progress"):
            return Exit.LIMIT
        case _:
            return Exit.FAILED


_OF_CODES = {
    "INVALID_ARGUMENT": Exit.USAGE,
    "CONFLICT": Exit.CONFLICT,
    "WRONG_STATE": Exit.CONFLICT,
}


def exit_of_error(code: str) -> Exit:
    """The exit code of a command that ended with this error code: most are plain failures."""
    return _OF_CODES.get(code, Exit.FAILED)
