"""Time what a runner does for all missions: APScheduler wakes it, the database says what is due.

Its jobs are in memory and belong to one runner. Whatever has to happen once, however many runners there are, is decided
by a transaction of the work that it wakes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import SimpleQueue

from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from lcp_engine.sandbox.file_access import Shortage

END_SECONDS = 5.0
"""How long the end of a runner waits for what is under way."""
_STEP_SECONDS = 1.0


class Timetable:
    """Does works again and again, each when it is due, until `stop`; calls `failed` with what one raises.

    `quick` works are done one after the other in one thread, the others in a second one: a backup delays no launch.
    """

    def __init__(
        self, failed: Callable[[BaseException], None], wall: Callable[[], float] = time.time
    ) -> None:
        self._failed = failed
        self._wall = wall
        self._offset = wall() - time.monotonic()
        # It says at each due time that the last work is still under way, for as long as a database is away.
        logger = logging.getLogger("lcp_engine.timetable")
        logger.setLevel(logging.ERROR)
        self._executors = {"quick": OneThread(), "slow": OneThread()}
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            logger=logger,
            executors=self._executors,
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )

    def add(
        self, name: str, work: Callable[[], None], seconds: Callable[[], float], *, quick: bool = True
    ) -> None:
        """Have `work` done after `seconds()`, and again and again, but not while it is under way."""
        self._scheduler.add_job(
            partial(self._do, work), Later(seconds), id=name, name=name, executor="quick" if quick else "slow"
        )

    def start(self) -> None:
        """Begin. Raises `Shortage`, and can then be forgotten."""
        try:
            self._scheduler.start()
        except RuntimeError as error:  # one of its threads; the others end
            for executor in self._executors.values():
                executor.shutdown(wait=False)
            raise Shortage.because(error) from error

    def stop(self) -> None:
        """Wait a moment for what is under way; nothing begins any more."""
        self._scheduler.shutdown()

    def follow_clock(self) -> None:
        """Set all times anew if the system's clock, by which APScheduler goes, was set back. Call it every second."""
        before, self._offset = self._offset, self._wall() - time.monotonic()
        if self._offset < before - _STEP_SECONDS:
            for job in self._scheduler.get_jobs():
                job.reschedule(job.trigger)

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- the top of a thread: the runner decides
            self._failed(error)


class Later(BaseTrigger):  # type: ignore[misc] # apscheduler has no types
    """Fires `seconds()` after it has fired, which is more than 0.

    Once after any pause, and after any step of the clock forward: an `IntervalTrigger` counts every second of it.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return now + timedelta(seconds=self._seconds())


class OneThread(BaseExecutor):  # type: ignore[misc] # apscheduler has no types
    """Executes jobs one after the other in a thread that keeps no process from ending.

    The pool of APScheduler does, and logs two lines for each.
    """

    def __init__(self) -> None:
        super().__init__()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="lcp-timetable", daemon=True)

    def start(self, scheduler: BackgroundScheduler, alias: str) -> None:
        super().start(scheduler, alias)
        self._thread.start()

    def shutdown(self, wait: bool = True) -> None:
        self._jobs.put(None)
        if wait:
            self._thread.join(END_SECONDS)

    def _do_submit_job(self, job: Job, run_times: list[datetime]) -> None:
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.func()
            self._run_job_success(job.id, [])
