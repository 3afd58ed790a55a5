"""Outlast a database that is away: a server that restarts, a disk that is full or read-only."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Seconds between two attempts; the pauses grow."""
TELL_AFTER, TELL_EVERY = 1.0, 60.0


class Caller(Protocol):
    """One who waits for the database."""

    away_since: float | None
    """When it first found the database away (monotonic)."""


class Waiting:
    """A `Caller` that is not a unit of work."""

    def __init__(self) -> None:
        self.away_since: float | None = None


class Outage:
    """The time in which a database is away, shared by all threads that wait for it.

    Each caller waits for `seconds` at most (infinity: as long as it takes). `tell` gets a sentence once an outage lasts
    longer than a moment, then once a minute, and one when the database is back.
    """

    def __init__(self, seconds: float, tell: Callable[[str], None] | None = None) -> None:
        self.seconds = seconds
        self.tell = tell or logging.getLogger("lcp_engine").warning
        self._changed = threading.Condition()
        self._callers: set[Caller] = set()
        self._began = 0.0
        self._tries = 0
        self._told: float | None = None
        self._is_hurried: list[Callable[[], bool]] = []

    @property
    def is_on(self) -> bool:
        return bool(self._callers)

    def pause(self, caller: Caller, why: str) -> None:
        """Wait until another attempt may succeed: a little longer each time, and not as long as others."""
        now = time.monotonic()
        if caller.away_since is None:
            caller.away_since = now
        with self._changed:
            if not self._callers:
                self._began, self._tries, self._told = now, 0, None
            self._callers.add(caller)
            self._tries += 1
            tries, began = self._tries, self._began
            is_due = now - began > TELL_AFTER if self._told is None else now - self._told > TELL_EVERY
            if is_due:
                self._told = now
        if is_due:
            self.tell(f"waiting for the database, which has been away for {_seconds(now - began)}: {why}")
        seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 8)) * random.uniform(0.5, 1.0)  # noqa: S311 -- no secret
        with self._changed:
            if not self.has_hurry:
                self._changed.wait(max(0.0, min(seconds, caller.away_since + self.seconds - now)))

    def is_over_for(self, caller: Caller) -> bool:
        """True if the caller has waited as long as it may."""
        if caller.away_since is None:
            return False
        return self.has_hurry or time.monotonic() - caller.away_since >= self.seconds

    def leave(self, caller: Caller, *, was_answered: bool) -> None:
        """Note that a caller waits no longer, since it was answered or gave up."""
        with self._changed:
            self._callers.discard(caller)
            is_over = was_answered and not self._callers and self._told is not None
            if is_over:
                self._told = None
            if was_answered:
                self._changed.notify_all()
            seconds = time.monotonic() - self._began
        if is_over:
            self.tell(f"the database is back after {_seconds(seconds)}")

    @contextmanager
    def unless(self, is_stopping: Callable[[], bool]) -> Iterator[None]:
        """Inside `with`: nobody waits any more once `is_stopping` is true; call `look_again` when it is."""
        self._is_hurried.append(is_stopping)
        try:
            yield
        finally:
            self._is_hurried.remove(is_stopping)

    def look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @property
    def has_hurry(self) -> bool:
        """True if one who uses the database is to stop."""
        return any(is_stopping() for is_stopping in self._is_hurried)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
