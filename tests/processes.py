"""Look at the processes of this machine, any of which may end meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def descriptors(pid: int | None = None) -> int:
    """How many descriptors this process and its descendants have open; who ended meanwhile has none."""
    return sum(map(_opened, family(pid or os.getpid())))


def processes_with(word: str) -> list[int]:
    """The processes that have a word among their arguments."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [int(file.parent.name)] if word.encode() in file.read_bytes().split(b"\0") else []
    return found


def family(pid: int) -> list[int]:
    """A process and its descendants, oldest first; who ended meanwhile has no more of them."""
    found = [pid]
    for child in _children(pid):
        found += family(child)
    return found


def _opened(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    return 0


def _children(pid: int) -> list[int]:
    """Those of all its threads; the process, or a thread of it, may end while it is looked at."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found
