"""Bound the CPU time that a list of patterns may take to tell names apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from lcp_engine.errors import ErrorCode, LcpError

SECONDS = 0.5
"""What any list may take."""
NAMES = 100_000
PER_NAME = 10e-6
"""Seconds for each name beyond the first `NAMES`: a large tree is not refused for its size."""


class Effort:
    """What one listing has spent so far. `cpu` is the clock of this thread, `clock` one that is quicker to read."""

    def __init__(
        self, cpu: Callable[[], float] = time.thread_time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cpu, self._clock = cpu, clock
        self._spent = 0.0
        self._names = 0

    def watch(self, names: Iterable[str]) -> Iterator[str]:
        """The same names; the work on each, until the next is asked for, counts. Raises INVALID_PATTERN."""
        clock, began = self._clock, self._cpu()
        late = clock() + self._left
        for name in names:
            # Less CPU time than time has passed: the clock that is slow to read is asked only then.
            if clock() > late:
                late = self._look_closely(began)
            self._names += 1
            yield name
        self._spent += self._cpu() - began

    def _look_closely(self, began: float) -> float:
        left = self._left - (self._cpu() - began)
        if left <= 0:
            fact = f"these patterns take more than {SECONDS:g} s of CPU to tell {self._names:,} names apart"
            raise LcpError(ErrorCode.INVALID_PATTERN, f"{fact}, simpler ones are needed")
        return self._clock() + left

    @property
    def _left(self) -> float:
        return SECONDS + PER_NAME * max(self._names - NAMES, 0) - self._spent
