"""Hold what one thread of a runner has under way, so that the watch may look at it and take it over."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from lcp_engine.execution import Conclusion
from lcp_engine.store.records import JobRow


class Lane:
    """One thread's jobs: leased, under way, done. Every method may be called from any thread."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self._lock = threading.Lock()
        self._leased: deque[JobRow] = deque()
        self._done: list[Conclusion] = []
        self._unstarted: list[JobRow] = []
        self._current: JobRow | None = None
        self._deadline = 0.0
        self._began = 0.0
        self._average = 1.0
        self._batch = 1
        self.is_abandoned = False
        self._thread: threading.Thread | None = None

    def start(self, drive: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=drive, name=f"lcp-lane-{self.slot}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        if self._thread is not None and not self.is_abandoned:
            self._thread.join(seconds)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self.is_abandoned

    @property
    def is_busy(self) -> bool:
        return self._current is not None or self.has_more or self.has_left

    @property
    def has_more(self) -> bool:
        return bool(self._leased)

    @property
    def has_left(self) -> bool:
        """Whether there is something to settle or to give back."""
        return bool(self._done or self._unstarted)

    def batch(self, most: int, quick_seconds: float) -> int:
        """How many jobs to claim: one, and more while they take next to no time (`quick_seconds` for all)."""
        wanted = int(quick_seconds / self._average) if self._average > 0 else most
        self._batch = max(1, min(most, self._batch * 2, wanted))
        return self._batch

    def take(self, jobs: list[JobRow]) -> None:
        with self._lock:
            self._leased.extend(jobs)

    def next_job(self, *, give_back: bool) -> JobRow | None:
        """The next leased job; None after the last one, or to give all back that are not started."""
        with self._lock:
            if give_back or self.is_abandoned:
                self._unstarted.extend(self._leased)
                self._leased.clear()
            return self._leased.popleft() if self._leased else None

    def begins(self, job: JobRow, began: float, timeout: float) -> None:
        """`began` is a time of the monotonic clock, in seconds; `timeout` how many more the job has."""
        with self._lock:
            self._current, self._began, self._deadline = job, began, began + timeout

    def ends(self, conclusion: Conclusion | None) -> bool:
        """Keep what the current job came to. False where the lane was abandoned meanwhile: nothing counts then."""
        with self._lock:
            if self.is_abandoned:
                return False
            if conclusion is not None:
                self._done.append(conclusion)
                self._average += (conclusion.seconds - self._average) / 4
            self._current = None
            return True

    def gives_up(self, job: JobRow) -> None:
        """Give back the current job, whose execution came to nothing."""
        with self._lock:
            if not self.is_abandoned:
                self._unstarted.append(job)
            self._current = None

    def add(self, conclusion: Conclusion) -> None:
        with self._lock:
            self._done.append(conclusion)

    def collect(self) -> tuple[list[Conclusion], list[JobRow]]:
        """What is to be settled, and what is to be given back; both are handed out once."""
        with self._lock:
            done, unstarted = self._done, self._unstarted
            self._done, self._unstarted = [], []
            return done, unstarted

    def put_back(self, done: list[Conclusion], unstarted: list[JobRow]) -> None:
        """Take again what `collect` handed out and could not be written."""
        with self._lock:
            self._done = done + self._done
            self._unstarted = unstarted + self._unstarted

    def free_waiting(self, now: float, seconds: float) -> None:
        """Let others have the jobs that wait behind a current one of more than `seconds`."""
        with self._lock:
            if self._current is not None and now - self._began > seconds:
                self._unstarted.extend(self._leased)
                self._leased.clear()

    def abandon_if_late(self, now: float) -> JobRow | None:
        """The job that is beyond its deadline, whose lane is left then; its unstarted jobs are to be given back."""
        with self._lock:
            if self.is_abandoned or self._current is None or now < self._deadline:
                return None
            self.is_abandoned = True
            self._unstarted.extend(self._leased)
            self._leased.clear()
            return self._current
