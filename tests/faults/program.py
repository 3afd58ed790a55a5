"""Run `lcp` with a clock that another process moves, and with kinds that are slow or fork.

Usage: python -m tests.faults.program ARGUMENT...

The file that LCP_TEST_CLOCK names holds two numbers: by how many seconds this process sees the time of day shifted, and
by how many its monotonic clock, which stands still while a machine sleeps.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

FILE = "log.txt"
"""Where the kinds of `tests.faults.kinds` append their lines."""
CLOCK = struct.Struct("<dd")
STEADY = (time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW)
"""The clocks of a process that stand still while its machine sleeps."""


def write_clock(file: Path, shift: float, monotonic: float = 0.0) -> None:
    """In one write, so that no reader sees a half."""
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY, 0o644)
    os.pwrite(descriptor, CLOCK.pack(shift, monotonic), 0)
    os.close(descriptor)


def _move_clocks(file: Path) -> None:
    """Before anything of the engine is imported, which may import functions of `time` by name."""
    descriptor = os.open(file, os.O_RDONLY)
    real, real_ns = time.clock_gettime, time.clock_gettime_ns

    def offset(clock: int) -> float:
        shift, monotonic = CLOCK.unpack(os.pread(descriptor, CLOCK.size, 0))
        found: float = shift if clock == time.CLOCK_REALTIME else monotonic if clock in STEADY else 0.0
        return found

    def shifted(clock: int) -> Callable[[], float]:
        return lambda: real(clock) + offset(clock)

    def shifted_ns(clock: int) -> Callable[[], int]:
        return lambda: real_ns(clock) + int(offset(clock) * 1e9)

    time.time, time.time_ns = shifted(time.CLOCK_REALTIME), shifted_ns(time.CLOCK_REALTIME)
    time.monotonic, time.monotonic_ns = shifted(time.CLOCK_MONOTONIC), shifted_ns(time.CLOCK_MONOTONIC)
    time.clock_gettime = lambda clock: real(clock) + offset(clock)
    time.clock_gettime_ns = lambda clock: real_ns(clock) + int(offset(clock) * 1e9)


def main() -> None:
    if clock := os.environ.get("LCP_TEST_CLOCK"):
        _move_clocks(Path(clock))
    from tests.faults import kinds

    from lcp_engine.cli import main as lcp

    assert kinds.KINDS
    lcp()


if __name__ == "__main__":
    main()
