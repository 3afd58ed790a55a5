"""Hold what one thread of a runner has under way, so that the watch may look at it and take it over."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from lcp_engine.engine.settle import Finished
from lcp_engine.runner.executor import BatchLimit
from lcp_engine.store.row_types import JobRow


class Lane:
    """One thread's jobs: leased, under way, done. Every method may be called from any thread."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self._lock = threading.Lock()
        self._leased: deque[JobRow] = deque()
        self._done: list[Finished] = []
        self._unstarted: list[JobRow] = []
        self._group: dict[int, JobRow] = {}
        self._begun: set[int] = set()
        self._current: JobRow | None = None
        self._deadline = 0.0
        self._began = 0.0
        self._average: float | None = None
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
        return bool(self._group) or self.has_more or self.has_left

    @property
    def has_more(self) -> bool:
        return bool(self._leased)

    @property
    def has_left(self) -> bool:
        """Whether there is something to settle or to give back."""
        return bool(self._done or self._unstarted)

    def batch(self, most: int, quick_seconds: float) -> int:
        """How many jobs to claim: one, and more while they take next to no time (`quick_seconds` for all)."""
        if self._average is not None:
            wanted = int(quick_seconds / self._average) if self._average > 0 else most
            self._batch = max(1, min(most, self._batch * 2, wanted))
        return self._batch

    def take(self, jobs: list[JobRow]) -> None:
        with self._lock:
            self._leased.extend(jobs)

    def next_jobs(self, room_for: Callable[[JobRow], BatchLimit], *, give_back: bool) -> list[JobRow]:
        """The next leased job and those of its kind and mission behind it that there is room for beside it.

        None after the last one, or to give all back.
        """
        with self._lock:
            if give_back or self.is_abandoned:
                self._unstarted.extend(self._leased)
                self._leased.clear()
            group = [self._leased.popleft()] if self._leased else []
            if group and self._leased:
                self._fill_up(group, room_for(group[0]))
            self._group = {job.id: job for job in group}
            return group

    def _fill_up(self, group: list[JobRow], room: BatchLimit) -> None:
        first, characters = group[0], room.characters - len(group[0].params)
        while self._leased and len(group) < room.jobs:
            job = self._leased[0]
            characters -= len(job.params)
            if characters < 0 or (job.kind, job.mission_id) != (first.kind, first.mission_id):
                return
            group.append(self._leased.popleft())

    def turns_to(self, job: JobRow, now: float, timeout: float) -> bool:
        """`now` is a time of the monotonic clock, in seconds; `timeout` how many more the job has.

        False where the job was given back meanwhile.
        """
        with self._lock:
            if job.id not in self._group:
                return False
            if self._current is None:
                self._began = now
            self._current, self._deadline = job, now + timeout
            self._begun.add(job.id)
            return True

    def waits(self, jobs: Iterable[JobRow]) -> None:
        """None of the jobs goes on: each may be given back until it is turned to again."""
        with self._lock:
            self._begun.difference_update(job.id for job in jobs)
            self._current = None

    def comes_to(self, finished: Finished) -> None:
        """Keep what a job under way came to; of one that was given back, nothing counts."""
        with self._lock:
            if self._group.pop(finished.job.id, None) is not None:
                self._done.append(finished)

    def ends(self, count: int, seconds: float) -> bool:
        """The jobs that were under way are done, so many, each in `seconds`. False where the lane was abandoned."""
        with self._lock:
            if self.is_abandoned:
                return False
            if self._average is None or seconds < self._average:
                # What was begun for one job, or stood in its way, is not what the next one takes.
                self._average = seconds
            else:
                self._average = seconds + (self._average - seconds) * 0.75**count
            self._leave_group()
            return True

    def gives_up(self) -> None:
        """Give back the jobs under way, whose execution came to nothing."""
        with self._lock:
            self._unstarted.extend(self._group.values())
            self._leave_group()

    def add(self, finished: Finished) -> None:
        with self._lock:
            self._done.append(finished)

    def collect(self) -> tuple[list[Finished], list[JobRow]]:
        """What is to be settled, and what is to be given back; both are handed out once."""
        with self._lock:
            done, unstarted = self._done, self._unstarted
            self._done, self._unstarted = [], []
            return done, unstarted

    def put_back(self, done: list[Finished], unstarted: list[JobRow]) -> None:
        """Take again what `collect` handed out and could not be written."""
        with self._lock:
            self._done = done + self._done
            self._unstarted = unstarted + self._unstarted

    def free_waiting(self, now: float, seconds: float) -> None:
        """Let others have the jobs that wait behind a current one of more than `seconds`."""
        with self._lock:
            if self._current is not None and now - self._began > seconds:
                waiting = [job for job in self._group.values() if job.id not in self._begun]
                for job in waiting:
                    del self._group[job.id]
                self._unstarted += [*waiting, *self._leased]
                self._leased.clear()

    def abandon_if_late(self, now: float) -> JobRow | None:
        """The job that is beyond its deadline, whose lane is left then; its unstarted jobs are to be given back."""
        with self._lock:
            if self.is_abandoned or self._current is None or now < self._deadline:
                return None
            late, self.is_abandoned = self._current, True
            self._group.pop(late.id, None)
            self._unstarted += [*self._group.values(), *self._leased]
            self._leased.clear()
            self._leave_group()
            return late

    def _leave_group(self) -> None:
        self._group, self._begun, self._current = {}, set(), None


def wait_for(lanes: Iterable[Lane], seconds: float) -> None:
    """Wait until none of them is alive, `seconds` at most."""
    end = time.monotonic() + seconds
    for lane in lanes:
        lane.join(max(0.0, end - time.monotonic()))
        if lane.is_alive:
            return
