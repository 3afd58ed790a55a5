"""Tell the processes of a machine that something has changed: a word of a file that all of them have mapped.

To look at it costs no call to the system.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_SIZE = 8


class Mark:
    """A number that `renew` changes, in every process that has mapped the same file; unmapped when nobody uses it.

    Raises OSError where the file at `path` cannot be made or mapped.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(
                descriptor, 0, _SIZE
            )  # a full disk tells now, and not by a signal at the first write
            self._words = memoryview(mmap.mmap(descriptor, _SIZE)).cast("q")
        finally:
            os.close(descriptor)

    @property
    def number(self) -> int:
        return self._words[0]

    def renew(self) -> None:
        self._words[0] = int.from_bytes(os.urandom(7))


def make_mark(path: Path) -> Mark | None:
    """The mark at `path`; None where this machine cannot have one."""
    try:
        return Mark(path)
    except OSError:
        return None
