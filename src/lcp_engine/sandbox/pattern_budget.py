"""Bound the CPU time that a list of patterns may take to tell names apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from lcp_engine.errors import ErrorCode, LcpError

SECONDS = 0.5
"""What any list may take."""
NAMES = 100_000
PER_NAME = 10e-6
"""Seconds for each name beyond the first `NAMES`: a large tree is not refused for its size."""
STEPS = 100_000
"""Between two looks at the clock; a step, a character of the list met by one of a path, took 0.3 µs at worst."""


class Effort:
    """What one listing has spent so far with patterns of `size` characters. `cpu` is the clock of this thread."""

    def __init__(self, size: int, cpu: Callable[[], float] = time.thread_time) -> None:
        self._size = size
        self._cpu = cpu
        self._spent = 0.0
        self._names = 0

    def pieces(self, names: list[str], prefix: str) -> Iterator[list[str]]:
        """The same names, which follow `prefix`, in pieces; the work on each piece counts. Raises INVALID_PATTERN."""
        self._names += len(names)
        longest = len(prefix) + max(map(len, names), default=0)
        most = STEPS // (self._size * longest + 1) + 1
        for first in range(0, len(names), most):
            began = self._cpu()
            yield names[first : first + most]
            self._spent += self._cpu() - began
            if self._spent > SECONDS + PER_NAME * max(self._names - NAMES, 0):
                fact = (
                    f"these patterns take more than {SECONDS:g} s of CPU to tell {self._names:,} names apart"
                )
                raise LcpError(ErrorCode.INVALID_PATTERN, f"{fact}, simpler ones are needed")
