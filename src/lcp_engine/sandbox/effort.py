"""Bound the CPU time that a list of patterns may take to tell names apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

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
        self._began = cpu(), clock()
        self._spent = 0.0  # of time that passed
        self._names = 0

    def watch(self, names: Sequence[str]) -> Iterator[str]:
        """The same names; the work on each, until the next is asked for, counts. Raises INVALID_PATTERN."""
        self._names += len(names)
        clock = self._clock
        began = clock()
        late = began + self._allowed - self._spent
        for name in names:
            # Less CPU time than time has passed: the clock that is slow to read is asked only then.
            if clock() > late:
                late = self._look_closely(clock() - began)
            yield name
        self._spent += clock() - began

    def _look_closely(self, passed: float) -> float:
        """Until when the next look can wait. Of the time that passed, the share of this thread is that of the whole."""
        cpu, now = self._cpu() - self._began[0], self._clock()
        share = min(cpu / max(now - self._began[1], 1e-9), 1.0)
        left = self._allowed - (self._spent + passed) * share
        if left <= 0:
            fact = f"these patterns take more than {SECONDS:g} s of CPU to tell {self._names:,} names apart"
            raise LcpError(ErrorCode.INVALID_PATTERN, f"{fact}, simpler ones are needed")
        return now + left

    @property
    def _allowed(self) -> float:
        return SECONDS + PER_NAME * max(self._names - NAMES, 0)
