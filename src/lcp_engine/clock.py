"""The time: microseconds of UTC since 1970 as integers, ISO 8601 for people."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Micros: TypeAlias = int
Clock: TypeAlias = Callable[[], Micros]

SECOND: Micros = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def steady_clock(start: Micros | None = None) -> Clock:
    """A clock that starts at `start` (default: the system's time) and never goes back, whatever sets the system's."""
    offset = (time.time_ns() // 1000 if start is None else start) - time.monotonic_ns() // 1000
    return lambda: time.monotonic_ns() // 1000 + offset


def system_clock() -> Micros:
    """The system's time: it advances while the machine sleeps, and goes back if it is set back."""
    return time.time_ns() // 1000


def since_start() -> Micros:
    """The time since the machine was started: it advances while the machine sleeps, and nobody can set it."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def micros(length: timedelta) -> Micros:
    """A length of time in microseconds."""
    return length // timedelta(microseconds=1)


def iso(at: Micros) -> str:
    """`at` as ISO 8601 with offset, to the microsecond."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds")
