"""Execute jobs: threads claim, execute and settle them; a watchdog renews leases, times out and rescues.

What is due at times, such as schedules, is done by threads of its own (`timetable`).
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from lcp_engine.changes.undo import UNDO
from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.kinds import TURN, kind_named
from lcp_engine.core.limits.permits import limit_of
from lcp_engine.core.limits.terms import terms_of
from lcp_engine.core.mission.spec import KindSettings, MissionSpec, spec_of
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import Chore, chores, root_provider
from lcp_engine.engine.settle import finish
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError
from lcp_engine.planners.registry import endpoint_limit
from lcp_engine.runner.executor import BatchLimit, Executor
from lcp_engine.runner.lane import Lane, wait_for
from lcp_engine.runner.leases import Leases
from lcp_engine.runner.maintenance import Maintenance
from lcp_engine.sandbox.file_access import Shortage, confined_threads
from lcp_engine.store import queue
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import refuse_newer
from lcp_engine.store.db.outage import Outage
from lcp_engine.store.host.liveness import LivenessFile, this_host, watch_for_deaths
from lcp_engine.store.host.roots import Roots, ServedMissions
from lcp_engine.store.host.wakeup import IdleThreads
from lcp_engine.store.queries.mission_spec import spec_and_root
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import ExecutedBy, Worker, Workers
from lcp_engine.workers.engine_kinds import engine_workers

if TYPE_CHECKING:
    from lcp_engine.runner.timetable import Timetable

POLL_SECONDS = 1.0
"""How often a runner checks for jobs that no signal announced."""
T = TypeVar("T")
WATCH_SECONDS = 1.0
SLOW_SECONDS = 0.5
"""A group of jobs that takes longer gives back the jobs that wait behind it."""
MAX_CLAIM = 100
FLUSH_SECONDS = 0.002
"""Finished jobs are settled after so long; longer on a slow disk."""
QUICK_SECONDS = 0.02
"""A lane claims so many jobs as it can execute in this time; more on a slow disk."""
HANG_SECONDS = 3.0
"""A job that takes longer has the runner find out whether its root answers."""
TELL_SECONDS = 60.0
ROOT_SECONDS = 10.0
"""How often roots that were not on this machine are searched again."""


class Runs:
    """The runs of one engine's runners under way, which end together. Any thread and signal handler may call."""

    def __init__(self) -> None:
        self._threads: dict[Runner, int] = {}
        self._changed = threading.Condition()  # its lock is reentrant: a signal may interrupt the holder
        self._is_closed = False
        self._ends_next = False

    def begin(self, runner: Runner, *, ends_itself: bool) -> bool:
        """Note that a run begins. False if it has to end at once."""
        with self._changed:
            was_stopped, self._ends_next = self._ends_next, False
            if self._is_closed or (was_stopped and not ends_itself):
                return False
            self._threads[runner] = threading.get_ident()
            return True

    def end(self, runner: Runner) -> None:
        with self._changed:
            self._threads.pop(runner, None)
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the runs under way; if there are none, the next one that would not end by itself.

        So a stop is not lost on a thread that is about to run.
        """
        with self._changed:
            self._ends_next = not self._threads
            for runner in list(self._threads):
                runner.stop()

    def close(self) -> None:
        """Stop every run, also later ones, and wait until those of other threads have ended."""
        own = threading.get_ident()
        with self._changed:
            self._is_closed = True
            self.stop()
            self._changed.wait_for(lambda: all(thread == own for thread in self._threads.values()))


class Runner:
    """Executes the jobs of one database in this process.

    `threads` jobs run at once. With `mission_id` only that mission's, with `kinds` only these. With `until_idle` it
    ends when nothing in this scope is queued, delayed or leased, otherwise when it is stopped. Missions whose root is
    not one of `roots` are left to other runners. `runs` may stop it together with others. It polls every
    `poll_seconds`. Raises `INVALID_ARGUMENT` for less than one thread, `NO_WORKER`, `NOT_FOUND`.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        threads: int = 1,
        mission_id: int | None = None,
        kinds: Sequence[str] | None = None,
        until_idle: bool = False,
        roots: Roots | None = None,
        runs: Runs | None = None,
        max_claim: int = MAX_CLAIM,
        poll_seconds: float = POLL_SECONDS,
        jitter: random.Random | None = None,
    ) -> None:
        self._instance = instance
        self._database = instance.database
        confined = confined_threads(instance.isolation)
        if threads < 1:
            raise LcpError(ErrorCode.INVALID_ARGUMENT, f"threads is {threads}; at least 1 is needed")
        if mission_id is not None:
            instance.database.read(lambda tx: spec_and_root(tx, mission_id))
        self._workers = {**instance.admission.workers, UNDO.kind: UNDO, **engine_workers()}
        known = sorted(self._workers)
        kinds = None if kinds is None else [kind_named(kind, self._workers) for kind in kinds]
        unknown = sorted(set(kinds or ()) - set(known))
        if unknown:
            message = f"no worker executes kind {unknown[0]!r}; {nearest(unknown[0], known)}"
            raise LcpError(ErrorCode.NO_WORKER, message, advice="Name a kind that has a worker.")
        self._threads = threads
        self._until_idle = until_idle
        self._runs = runs or Runs()
        self._max_claim = max_claim
        self._poll_seconds = poll_seconds
        self._idle = IdleThreads()
        # Whether the last signal led to a claim. False if other runners were faster, or only they execute such jobs.
        self._was_signal_useful = True
        self._stopping = False
        self._error: BaseException | None = None
        self._lanes: list[Lane] = []
        self.tell: Callable[[str], None] = lambda text: None
        self._told_shortage = -math.inf
        self._slots = count()
        self._uid = uuid4().hex
        self._host = this_host()
        roots = roots or instance.roots()
        self._served = ServedMissions(roots, root_provider().is_elsewhere)
        scope = queue.Scope(tuple(known if kinds is None else sorted(kinds)), mission_id)
        environment = instance.planner_environment
        self._leases = Leases(
            instance.database,
            scope,
            self._served,
            jitter or random.Random(),  # noqa: S311 -- no secret
            endpoint_of=lru_cache(1000)(lambda spec: endpoint_limit(spec_of(spec).planner, environment)),
        )
        self._kinds = _MissionKinds(instance.database, self._workers)
        self._executor = Executor(instance, self._leases.settle, roots)
        self._executor.on_shortage = self._note_shortage
        self._maintenance = Maintenance(instance, confined, self._host)
        self._is_general = mission_id is None
        self._chores = [Chore(name="hold timeouts", do=self._maintenance.expire_holds, is_first=True)]
        self._timetable: Timetable | None = None
        self._flush_seconds = FLUSH_SECONDS
        self._quick_seconds = QUICK_SECONDS

    def run(self) -> None:
        """Execute jobs until idle or stopped. Raises the error that ended it otherwise (a lost database)."""
        with ExitStack() as leaving:
            leaving.callback(self._runs.end, self)
            if not self._runs.begin(self, ends_itself=self._until_idle):
                return
            leaving.enter_context(self._database.outage.unless(self._is_stopping))
            leaving.callback(self._executor.close)
            finishing = leaving.enter_context(ExitStack())
            self._liveness = LivenessFile(self._instance.runtime, self._uid)
            leaving.callback(self._liveness.remove)
            limits = {kind: limit_of(one.rate_limit, one.max_running) for kind, one in self._workers.items()}
            self._database.read(refuse_newer)
            self._leases.register(self._uid, self._host, limits)
            leaving.callback(self._leases.unregister)
            self._take_chores(finishing)
            self._idle.open(self._instance.notifier.listen(self._uid, self._idle.wake_one))
            leaving.callback(self._idle.close)
            watch = partial(watch_for_deaths, self._instance.runtime, self._rescue_at_once)
            if (end := self._once_possible(watch)) is not None:
                leaving.callback(end)
            leaving.callback(self._maintenance.finish)
            leaving.callback(self._stop_timetable)
            self._once_possible(self._do_first)
            self._fit_lanes(self._threads)
            self._watch()
            self._explain_error()
        if self._error is not None:
            raise self._error

    def _once_possible(self, begin: Callable[[], T]) -> T | None:
        """Call `begin` as soon as the system starts what it needs; None if this runner is to stop before."""
        while not self._stopping:
            try:
                return begin()
            except Shortage as shortage:
                self._note_shortage(shortage)
                time.sleep(WATCH_SECONDS)
                self._leases.renew(is_idle=True)
        return None

    def _take_chores(self, finishing: ExitStack) -> None:
        """Take over the chores of features until `finishing`; tell them when missions start to wait for a person."""
        found = chores(self._instance, self._leases.runner_id, self._is_stopping)
        self._chores += (one for one in found if self._is_general or not one.is_general)
        for one in self._chores:
            finishing.callback(_finish, one)

        def tell(waits: Mapping[int, int]) -> None:
            for one in self._chores:
                one.told(waits)

        self._database.on_waiting = tell

    def _do_first(self) -> None:
        """Do what is done before the first job."""
        self._maintenance.rescue(self._leases.runner_id)
        for one in self._chores:
            if one.is_first:
                one.do()

    def left_to_others(self) -> dict[str, int]:
        """Numbers of queued jobs that this runner found and did not claim, by the root that is not served here."""
        return self._database.read(self._served.left_jobs)

    @property
    def silent_roots(self) -> frozenset[str]:
        """The directories of roots whose file systems do not answer this runner."""
        return self._served.silent_roots | self._maintenance.silent_roots

    @property
    def outage(self) -> Outage:
        """The time in which its database is away."""
        return self._database.outage

    def stop(self) -> None:
        """Finish the jobs under way, give back the others, and end. May be called from a signal handler or a thread.

        Nothing waits for a database that is away then.
        """
        self._stopping = True

        def wake() -> None:
            self._idle.wake_all()
            self._database.outage.look_again()

        # In another thread: a signal may have interrupted this one while it holds a lock.
        with suppress(RuntimeError):  # the system starts no further thread: the watchdog does it
            threading.Thread(target=wake, daemon=True).start()

    # -- lanes: each is one thread

    def _open_lane(self) -> None:
        """Open a lane, now or as soon as the system starts another thread."""
        lane = Lane(next(self._slots))
        try:
            lane.run(partial(self._run_lane, lane))
        except Shortage as shortage:
            self._note_shortage(shortage)
        else:
            self._lanes.append(lane)

    def _may_pass(self, error: BaseException) -> bool:
        """True for an error that another try may not meet, and that ends no runner; a shortage is told."""
        if isinstance(error, Shortage):
            self._note_shortage(error)
        return isinstance(error, Shortage) or _is_busy(error)

    def _note_shortage(self, shortage: Shortage) -> None:
        """Say that this runner waits for processes or threads, not more than once a minute."""
        now = time.monotonic()
        if now - self._told_shortage > TELL_SECONDS:
            self._told_shortage = now
            self.tell(shortage.waiting)

    def _run_lane(self, lane: Lane) -> None:
        is_running = True
        while is_running:
            try:
                is_running = self._run_round(lane)
            except BaseException as error:  # noqa: BLE001 -- the top of a thread: `run` raises it
                if self._stopping and not lane.has_unsettled and _is_of_database(error):
                    return  # it looked for more work, and there is to be none
                if not self._may_pass(error) or self._stopping:
                    self._fail(error)
                    return
                if isinstance(error, Shortage):
                    time.sleep(WATCH_SECONDS)

    def _run_round(self, lane: Lane) -> bool:
        """Settle what is finished and execute the next jobs, or wait for some. False at the end."""
        if lane.is_abandoned or ((self._stopping or lane.is_surplus) and not lane.has_unsettled):
            return False
        wakeups = self._idle.wakeups
        if not lane.has_unsettled:
            at = self._leases.next_ready_at()
            if at is None or at > self._database.now():
                return self._wait_for_work(lane, wakeups, at)
            self._idle.wake_one()
        self._claim_and_execute(lane)
        return True

    def _wait_for_work(self, lane: Lane, wakeups: int, until: Micros | None) -> bool:
        """Sleep until a signal, or until the next delayed job is due. False if all work is done."""
        if self._until_idle and not self._leases.has_open():
            self.stop()
            return False
        seconds = None if until is None else max(0.0, (until - self._database.now()) / SECOND)
        if self._idle.sleep(wakeups, seconds) and not self._stopping:
            # A claim finds out as much as a read, but delays other writers: only if there should be work.
            if self._was_signal_useful:
                self._claim_and_execute(lane)
            else:
                self._database.writer_queue.wait_for_current()  # the signal may have come before its commit
        return True

    def _claim_and_execute(self, lane: Lane) -> None:
        """Settle what is finished and claim the next jobs in one transaction, then execute them."""
        was_idle = not lane.has_unsettled
        most = 0 if self._stopping else lane.claim_size(self._max_claim, self._quick_seconds)
        claimed = self.settle_and_claim(lane, most)
        if was_idle:
            self._was_signal_useful = bool(claimed)
            if claimed:
                self._idle.wake_one()
        self._execute(lane, claimed)

    def _execute(self, lane: Lane, claimed: list[JobRow]) -> None:
        lane.add(claimed)
        tracker, flushed = _LaneTracker(self, lane), time.monotonic()
        while jobs := lane.next_group(self._limit_of, return_all=self._stopping):
            began = time.monotonic()
            try:
                worker = self._kinds.worker(jobs[0])
                for finished in self._executor.execute(jobs, worker, tracker):
                    lane.finish(finished)
            except BaseException:  # an interrupt, too: the jobs are given back, and the lane reports it
                lane.return_group()
                raise
            if not lane.end_group(len(jobs), (time.monotonic() - began) / len(jobs)):
                return
            if time.monotonic() - flushed > self._flush_seconds and lane.has_leased:
                self.settle_and_claim(lane, 0)
                flushed = time.monotonic()

    def _limit_of(self, job: JobRow) -> BatchLimit:
        return self._executor.batch_limit(self._workers[job.kind])

    def start_job(self, lane: Lane, job: JobRow) -> bool:
        """Note that the lane starts a job. False if the job was given back meanwhile."""
        if not lane.start(job, time.monotonic(), self._kinds.worker(job).timeout):
            return False
        self._liveness.note_start(lane.slot, job.id, job.attempt)
        return True

    def settle_and_claim(self, lane: Lane, most: int) -> list[JobRow]:
        """Settle and release the lane's jobs, and claim up to `most` others, in one transaction."""
        finished, returned = lane.take_unsettled()
        began = time.monotonic()
        try:
            claimed = self._leases.settle_and_claim(finished, returned, most)
        except BaseException:  # an interrupt, too: nothing was committed
            lane.put_back(finished, returned)
            raise
        # On a slow disk few commits are worth more than seeing each result at once.
        took = time.monotonic() - began
        self._flush_seconds = max(FLUSH_SECONDS, 2 * took)
        self._quick_seconds = min(max(QUICK_SECONDS, 10 * took), SLOW_SECONDS / 2)
        return claimed

    def _is_stopping(self) -> bool:
        return self._stopping

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self.stop()

    # -- the watchdog: the thread that called `run`

    def _watch(self) -> None:
        polled = searched = time.monotonic()
        while any(lane.is_alive for lane in self._lanes) or not (self._stopping or self._lanes):
            try:
                self._wait_for_lanes()
                self._leases.renew(is_idle=not any(lane.is_busy for lane in self._lanes))
                self._leases.note_silent_roots(self.silent_roots)
                self._check_lanes(time.monotonic())
                self._end_lost_programs()
                if not self._stopping:
                    self._maintenance.rescue(self._leases.runner_id)
                    self._keep_time()
                if self._served.return_answered():
                    self._idle.wake_all()
                if self._served.elsewhere and time.monotonic() - searched > ROOT_SECONDS:
                    searched = time.monotonic()
                    self._served.forget()
                if time.monotonic() - polled > self._poll_seconds:
                    polled = time.monotonic()
                    self._poll()
            except KeyboardInterrupt as error:
                if self._error is not None:  # the second one: stop waiting for jobs under way
                    raise
                self._fail(error)
            except Exception as error:  # noqa: BLE001 -- the top of the watchdog: `run` raises it
                if not self._may_pass(error):
                    self._fail(error)

    def _wait_for_lanes(self) -> None:
        """Wait a moment, or until all lanes have ended."""
        if self._stopping:
            self._idle.wake_all()  # `stop` may have got no thread to do it
        if not self._lanes:
            time.sleep(WATCH_SECONDS)
        wait_for(self._lanes, self._maintenance.seconds_until_due(WATCH_SECONDS))

    def _explain_error(self) -> None:
        """Say what an unknown table or column means: the database was upgraded under this runner."""
        if self._error is not None:
            try:
                self._database.read(refuse_newer)
            except LcpError as error:
                if error.code is ErrorCode.DATABASE_VERSION:
                    self._error = error

    def _poll(self) -> None:
        """Wake a thread if a job is ready without a signal, or if another runner finished the last one.

        Raises `DATABASE_VERSION` if the database was upgraded meanwhile.
        """
        self._database.read(refuse_newer)
        at = self._leases.next_ready_at()
        is_ready = at is not None and at <= self._database.now()
        if is_ready or (self._until_idle and not self._leases.has_open()):
            self._idle.wake_one()

    def _check_lanes(self, now: float) -> None:
        """Fail attempts beyond their timeout, and give back the jobs that wait behind a slow one.

        A thread that hangs cannot be stopped: it is abandoned, and another one takes its place.
        """
        hanging = 0
        for lane in list(self._lanes):
            is_hanging = self._is_hanging(lane, now)
            hanging += is_hanging
            if is_hanging and self._stopping:
                lane.abandon()
            job = lane.abandon_if_late(now)
            if job is not None:
                worker = self._kinds.worker(job)
                message = f"job {job.id} ({job.kind}) did not end within {worker.timeout:g} s"
                lane.finish_late(finish(job, worker, Failed(ErrorCode.TIMEOUT, message)))
                self._executor.end([(job.id, job.attempt)])
                self._open_lane()
            lane.return_waiting(now, SLOW_SECONDS)
            if lane.has_unsettled:
                self.settle_and_claim(lane, 0)
            if lane.is_abandoned or (lane.is_surplus and not lane.is_alive):
                self._lanes.remove(lane)
        self._fit_lanes(self._threads + hanging)

    def _end_lost_programs(self) -> None:
        """End the programs of jobs that were cancelled, or that another runner has taken over."""
        if attempts := self._executor.attempts:
            self._executor.end(attempts - self._leases.held())

    def _is_hanging(self, lane: Lane, now: float) -> bool:
        """True if the lane waits for the file system of a root. All missions over that root are left then."""
        job = lane.job_since(now - HANG_SECONDS)
        if job is None or self._workers[job.kind].executed_by is not ExecutedBy.RUNNER:
            return False
        return not self._database.read(lambda tx: self._served.does_answer(tx, job.mission_id))

    def _fit_lanes(self, wanted: int) -> None:
        """Have so many lanes, so that those that hang cost the other missions nothing."""
        lasting = [lane for lane in self._lanes if not lane.is_surplus]
        for lane in lasting[wanted:]:
            lane.is_surplus = True
        if not self._stopping:
            for _ in range(wanted - len(lasting)):
                self._open_lane()
        if len(lasting) > wanted:
            self._idle.wake_all()

    def _keep_time(self) -> None:
        """Have done what is due at times. What was due at the start is done; a runner that ends soon loads nothing."""
        if self._timetable is None:
            from lcp_engine.runner.timetable import Timetable

            timetable = Timetable(self._note_untimely)
            for one in self._chores:
                timetable.add(one.name, self._unless_stopping(one.do), one.pause, quick=one.is_quick)
            try:
                timetable.start()
            except Shortage as shortage:
                self._note_shortage(shortage)
                return
            self._timetable = timetable
        self._timetable.follow_clock()

    def _stop_timetable(self) -> None:
        if self._timetable is not None:
            self._timetable.stop()

    def _unless_stopping(self, work: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self._stopping else work()

    def _note_untimely(self, error: BaseException) -> None:
        """Note that a chore could not be done: a lost database ends the runner, unless it ends anyway."""
        if not (self._may_pass(error) or (self._stopping and _is_of_database(error))):
            self._fail(error)

    def _rescue_at_once(self) -> None:
        """Rescue without waiting for the watchdog, which meets the same database errors and reports them."""
        if not self._stopping:
            with suppress(LcpError, OSError):
                self._maintenance.rescue(self._leases.runner_id)


def _finish(chore: Chore) -> None:
    with suppress(LcpError):  # the next runner does it
        chore.finish()


def _is_of_database(error: BaseException) -> bool:
    return isinstance(error, LcpError) and error.code in OF_DATABASE


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, LcpError) and error.code is ErrorCode.DATABASE_BUSY


MOST_KEPT = 1000
"""Missions whose settings for kinds are kept between jobs."""


class _MissionKinds:
    """The workers as missions set them; the spec of a mission is read once. Any thread may call."""

    def __init__(self, database: Database, workers: Workers) -> None:
        self._database = database
        self._workers = workers
        self._specs: dict[int, MissionSpec] = {}

    def worker(self, job: JobRow) -> Worker[BaseModel]:
        """Worker that executes a job."""
        spec = self._specs.get(job.mission_id)
        if spec is None:
            stored, _ = self._database.read(lambda tx: spec_and_root(tx, job.mission_id))
            if len(self._specs) >= MOST_KEPT:
                self._specs.clear()
            spec = self._specs[job.mission_id] = spec_of(stored)
        worker = self._workers[job.kind].under(spec.kinds.get(job.kind))
        if job.kind == TURN and spec.check_seconds:
            worker = worker.under(KindSettings(timeout=worker.timeout + spec.check_seconds))
        seconds = None if job.terms is None else terms_of(job.terms).timeout_ms
        return worker if seconds is None else worker.under(KindSettings(timeout=seconds / 1000))


class _LaneTracker:
    """Reports the jobs that a lane executes together (a `Tracker` of changes/journal.py)."""

    def __init__(self, runner: Runner, lane: Lane) -> None:
        self._runner = runner
        self._lane = lane

    def start(self, job: JobRow) -> bool:
        return self._runner.start_job(self._lane, job)

    def pause(self, jobs: Iterable[JobRow]) -> None:
        self._lane.pause(jobs)

    def settle_finished(self) -> None:
        if self._lane.has_unsettled:
            self._runner.settle_and_claim(self._lane, 0)
