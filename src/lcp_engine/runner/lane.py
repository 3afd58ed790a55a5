"""The jobs of one runner thread, which the watchdog can inspect and take over."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from lcp_engine.engine.settle import Finished
from lcp_engine.runner.executor import BatchLimit
from lcp_engine.sandbox.file_access import start_thread
from lcp_engine.store.row_types import JobRow


class Lane:
    """One thread and its jobs. Every method may be called from any thread.

        claimed ─▶ leased ─▶ group ─▶ finished ─▶ settled
                      │        │
                      └────────┴────▶ returned ─▶ released

    A group is what executes together; of its jobs, those in `started` can no longer be returned, unless the thread is
    abandoned. `current` is the job that the thread is at, with its deadline; None while it waits for a lock.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.is_abandoned = False
        self.is_surplus = False
        """Whether the thread ends after its jobs."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._leased: deque[JobRow] = deque()
        self._group: dict[int, JobRow] = {}
        self._started: set[int] = set()
        self._current: JobRow | None = None
        self._began = self._deadline = 0.0
        self._group_began = 0.0
        self._finished: list[Finished] = []
        self._returned: list[JobRow] = []
        self._seconds_per_job: float | None = None
        self._claim_size = 1

    def run(self, work: Callable[[], None]) -> None:
        """Call `work` in the lane's thread. Raises `Shortage`."""
        thread = threading.Thread(target=work, name=f"lcp-lane-{self.slot}", daemon=True)
        start_thread(thread)
        self._thread = thread

    def join(self, seconds: float) -> None:
        if self._thread is not None and not self.is_abandoned:
            self._thread.join(seconds)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self.is_abandoned

    @property
    def is_busy(self) -> bool:
        return bool(self._group) or self.has_leased or self.has_unsettled

    @property
    def has_leased(self) -> bool:
        return bool(self._leased)

    @property
    def has_unsettled(self) -> bool:
        """True if jobs are to be settled or released."""
        return bool(self._finished or self._returned)

    # -- claiming and settling

    def claim_size(self, most: int, quick_seconds: float) -> int:
        """Number of jobs to claim: one, and up to `most` while all of them take less than `quick_seconds`."""
        if self._seconds_per_job is not None:
            wanted = int(quick_seconds / self._seconds_per_job) if self._seconds_per_job > 0 else most
            self._claim_size = max(1, min(most, self._claim_size * 2, wanted))
        return self._claim_size

    def add(self, claimed: list[JobRow]) -> None:
        with self._lock:
            self._leased.extend(claimed)

    def take_unsettled(self) -> tuple[list[Finished], list[JobRow]]:
        """The jobs to settle and those to release; each is handed out once."""
        with self._lock:
            finished, returned = self._finished, self._returned
            self._finished, self._returned = [], []
            return finished, returned

    def put_back(self, finished: list[Finished], returned: list[JobRow]) -> None:
        """Undo `take_unsettled`: they could not be written."""
        with self._lock:
            self._finished = finished + self._finished
            self._returned = returned + self._returned

    # -- executing: called by the lane's own thread

    def next_group(self, limit_of: Callable[[JobRow], BatchLimit], *, return_all: bool) -> list[JobRow]:
        """The next leased job and those of its kind that its mission has next, within its limit; at the end none.

        With `return_all`, every leased job is returned instead.
        """
        with self._lock:
            if return_all or self.is_abandoned:
                self._returned.extend(self._leased)
                self._leased.clear()
            group = [self._leased.popleft()] if self._leased else []
            if group and self._leased:
                self._fill_up(group, limit_of(group[0]))
            self._group = {job.id: job for job in group}
            return group

    def _fill_up(self, group: list[JobRow], limit: BatchLimit) -> None:
        """Add the mission's next jobs, past those of other missions, whose turns come between them in a claim."""
        first, characters = group[0], limit.characters - len(group[0].params)
        passed: list[JobRow] = []
        while self._leased and len(group) < limit.jobs:
            job = self._leased[0]
            if job.priority != first.priority:
                break
            if job.mission_id != first.mission_id:
                passed.append(self._leased.popleft())
                continue
            characters -= len(job.params)
            if characters < 0 or (job.kind, job.terms) != (first.kind, None):
                break
            group.append(self._leased.popleft())
        self._leased.extendleft(reversed(passed))

    def start(self, job: JobRow, now: float, timeout: float) -> bool:
        """Make `job` the current one, until `now` (monotonic) plus `timeout`, in seconds. False if it was returned."""
        with self._lock:
            if job.id not in self._group:
                return False
            if self._current is None:
                self._group_began = now
            self._current, self._began, self._deadline = job, now, now + timeout
            self._started.add(job.id)
            return True

    def pause(self, jobs: Iterable[JobRow]) -> None:
        """Let these jobs be returned until each is started again: they wait for a lock."""
        with self._lock:
            self._started.difference_update(job.id for job in jobs)
            self._current = None

    def finish(self, finished: Finished) -> None:
        """Keep a job of the group for settlement, unless it was returned."""
        with self._lock:
            if self._group.pop(finished.job.id, None) is not None:
                self._finished.append(finished)

    def end_group(self, count: int, seconds: float) -> bool:
        """End a group of `count` jobs, which took `seconds` each. False if the lane was abandoned."""
        with self._lock:
            if self.is_abandoned:
                return False
            if self._seconds_per_job is None or seconds < self._seconds_per_job:
                # What was set up for one job, or delayed it, does not predict the next one.
                self._seconds_per_job = seconds
            else:
                self._seconds_per_job = seconds + (self._seconds_per_job - seconds) * 0.75**count
            self._clear_group()
            return True

    def return_group(self) -> None:
        """Return what is left of the group: the database failed, and not the jobs."""
        with self._lock:
            self._returned.extend(self._group.values())
            self._clear_group()

    # -- called by the watchdog

    def return_waiting(self, now: float, seconds: float) -> None:
        """Return the jobs that are not started, if the current group takes more than `seconds`."""
        with self._lock:
            if self._current is not None and now - self._group_began > seconds:
                waiting = [job for job in self._group.values() if job.id not in self._started]
                for job in waiting:
                    del self._group[job.id]
                self._returned += [*waiting, *self._leased]
                self._leased.clear()

    def job_since(self, at: float) -> JobRow | None:
        """The job that the thread came to last, if that was before `at` and it is not finished."""
        with self._lock:
            if self.is_abandoned or self._began >= at:
                return None
            return self._current or next(iter(self._group.values()), None)

    def abandon_if_late(self, now: float) -> JobRow | None:
        """The current job if it is beyond its deadline: the lane is abandoned then, and its other jobs are returned."""
        with self._lock:
            if self.is_abandoned or self._current is None or now < self._deadline:
                return None
            late = self._current
            self._group.pop(late.id, None)
            self._abandon()
            return late

    def abandon(self) -> None:
        """Return what the thread has not finished, also what it is at: it hangs, and the runner ends."""
        with self._lock:
            self._abandon()

    def finish_late(self, finished: Finished) -> None:
        """Keep the job that `abandon_if_late` found for settlement."""
        with self._lock:
            self._finished.append(finished)

    def _abandon(self) -> None:
        self.is_abandoned = True
        self._returned += [*self._group.values(), *self._leased]
        self._leased.clear()
        self._clear_group()

    def _clear_group(self) -> None:
        self._group, self._started, self._current = {}, set(), None


def wait_for(lanes: Iterable[Lane], seconds: float) -> None:
    """Wait until the threads of all lanes have ended, at most `seconds`."""
    end = time.monotonic() + seconds
    for lane in lanes:
        lane.join(max(0.0, end - time.monotonic()))
        if lane.is_alive:
            return
