"""Judge by their renewals how long other runners have been silent. Compares no clock with another machine's."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from lcp_engine.store.queue import LEASE_SECONDS
from lcp_engine.store.row_types import RunnerRow

LOOK_SECONDS = 1.0
"""How often to look while other runners hold leases."""
LONGEST_GAP = 2 * LOOK_SECONDS
"""So much of the time between two looks counts: a process that was stopped, or whose machine slept, saw nothing."""
DOUBT_SECONDS = LEASE_SECONDS / 2
"""From then on, looks count only between writes of this process: while it cannot write, nobody can renew."""


class LeaseWatch:
    """Silence of each runner that does not renew its leases, as this process has watched it. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked = 0.0
        self._seen: dict[int, tuple[int, float]] = {}

    def look(self, runners: Sequence[RunnerRow], now: float) -> None:
        """Note who has renewed since the last look; `now` is a time of this process's monotonic clock."""
        with self._lock:
            gap, self._looked = min(max(0.0, now - self._looked), LONGEST_GAP), now
            before, self._seen = self._seen, {}
            for runner in runners:
                counter, silent = before.get(runner.id, (runner.alive_until, -gap))
                is_silent = counter == runner.alive_until
                self._seen[runner.id] = (runner.alive_until, silent + gap if is_silent else 0.0)

    @property
    def is_watching(self) -> bool:
        return bool(self._seen)

    def has_doubts(self) -> bool:
        """True if a runner has been silent for so long that it may have died."""
        with self._lock:
            return any(silent >= DOUBT_SECONDS for _, silent in self._seen.values())

    def is_silent(self, runner: RunnerRow) -> bool:
        """True if the runner did not renew its leases for as long as they last."""
        with self._lock:
            _, silent = self._seen.get(runner.id, (0, 0.0))
        return silent >= LEASE_SECONDS
