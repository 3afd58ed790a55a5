"""Execute jobs: threads claim, execute and settle them; a watchdog renews leases, times out and rescues."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from uuid import uuid4

from lcp_engine.changes.callbacks import Shift
from lcp_engine.changes.recovery import UNDO
from lcp_engine.clock import SECOND, Micros
from lcp_engine.engine.instance import Site
from lcp_engine.engine.settle import Finished, FinishedJob, finish, settle, settle_finished
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.runner.executor import BatchLimit, Executor
from lcp_engine.runner.lane import Lane, wait_for
from lcp_engine.runner.maintenance import Maintenance
from lcp_engine.runner.on_wait_hook import WaitHook
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.store import queue
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import Host, LivenessFile, this_host, watch_for_deaths
from lcp_engine.store.host.roots import Roots, ServedMissions
from lcp_engine.store.host.wakeup import IdleThreads
from lcp_engine.store.ledger import ledger_of, spec_and_root
from lcp_engine.store.row_types import JobRow

LOOK_SECONDS = 1.0
WATCH_SECONDS = 1.0
SLOW_SECONDS = 0.5
MAX_CLAIM = 100
FLUSH_SECONDS = 0.002
QUICK_SECONDS = 0.02
ROOT_SECONDS = 10.0


class Runner:
    """A process's share of the work.

    `threads` jobs run at once. With `mission_id` only that mission's, with `kinds` only these. With `until_idle` it
    ends when nothing in this scope is queued, delayed or leased; else when it is stopped. Missions whose root is not
    one of `roots` are left to other runners. Each `look_seconds` it looks for jobs that no bell announced. Raises
    `INVALID_ARGUMENT` for less than one thread, `NO_WORKER`, `NOT_FOUND`.
    """

    def __init__(
        self,
        site: Site,
        *,
        threads: int = 1,
        mission_id: int | None = None,
        kinds: Sequence[str] | None = None,
        until_idle: bool = False,
        roots: Roots | None = None,
        max_claim: int = MAX_CLAIM,
        look_seconds: float = LOOK_SECONDS,
        jitter: random.Random | None = None,
    ) -> None:
        self._site = site
        self._database = site.database
        confined = confined_threads(site.isolation)
        if threads < 1:
            raise LcpError(ErrorCode.INVALID_ARGUMENT, f"threads has to be 1 or more; it is {threads}")
        if mission_id is not None:
            site.database.read(lambda tx: spec_and_root(tx, mission_id))
        self._workers = {**site.admission.workers, UNDO.kind: UNDO}
        known = sorted(self._workers)
        unknown = sorted(set(kinds or ()) - set(known))
        if unknown:
            message = f"no worker executes kind {unknown[0]!r}; there are {', '.join(known)}"
            raise LcpError(ErrorCode.NO_WORKER, message)
        self._threads = threads
        self._until_idle = until_idle
        self._max_claim = max_claim
        self._look_seconds = look_seconds
        self._idle = IdleThreads()
        # False where others were quicker, or execute what it rang for.
        self._was_signal_for_us = True
        self._stopping = False
        self._error: BaseException | None = None
        self._lanes: list[Lane] = []
        self._slots = count()
        self._uid = uuid4().hex
        self._host = this_host()
        # A SQLite file serves one machine: a root that is not there is a fault, and no other machine's.
        roots = roots or Roots(only_here=site.database.backend.dialect.name == "sqlite")
        self._share = ServedMissions(roots)
        scope = queue.Scope(tuple(known if kinds is None else sorted(kinds)), mission_id)
        self._leases = Leases(site.database, scope, self._share, jitter or random.Random())  # noqa: S311 -- no secret
        self._executor = Executor(site, self._leases.settle, roots)
        self._upkeep = Maintenance(site, confined, self._host, launches=mission_id is None)
        self._flush_seconds = FLUSH_SECONDS
        self._quick_seconds = QUICK_SECONDS

    def run(self) -> None:
        """Work until idle or stopped. Raises what ended it otherwise (a database that is gone)."""
        with ExitStack() as leaving:
            leaving.callback(self._executor.close)
            notice = WaitHook(self._database, self._site.on_wait)
            leaving.callback(notice.finish)
            if self._site.on_wait:
                self._database.on_waiting = notice.begin
            self._presence = LivenessFile(self._site.runtime, self._uid)
            leaving.callback(self._presence.leave)
            self._leases.enter(self._uid, self._host)
            leaving.callback(self._leases.leave)
            self._idle.open(self._site.notifier.listen(self._uid, self._idle.wake_one))
            leaving.callback(self._idle.close)
            leaving.callback(watch_for_deaths(self._site.runtime, self._rescue_at_once))
            self._upkeep.look(self._leases.runner_id)
            for _ in range(self._threads):
                self._open_lane()
            self._watch()
        if self._error is not None:
            raise self._error

    def left_to_others(self) -> dict[str, int]:
        """How many queued jobs this runner has met and does not take, by the root that is not served here."""
        return self._database.read(self._share.left)

    def stop(self) -> None:
        """Finish the jobs under way, give back the others, and end. May be called from a signal handler or a thread."""
        self._stopping = True
        # Not from this thread: a signal may have interrupted it while it holds the lock.
        threading.Thread(target=self._idle.wake_all, daemon=True).start()

    # -- lanes: each is one thread

    def _open_lane(self) -> None:
        lane = Lane(next(self._slots))
        self._lanes.append(lane)
        lane.start(lambda: self._drive(lane))

    def _drive(self, lane: Lane) -> None:
        goes_on = True
        while goes_on:
            try:
                goes_on = self._turn_round(lane)
            except BaseException as error:  # noqa: BLE001 -- `run` raises it
                if not self._is_busy(error) or self._stopping:
                    self._fail(error)
                    return

    def _turn_round(self, lane: Lane) -> bool:
        """Settle what is done and execute the next jobs, or wait for some. False at the end."""
        if lane.is_abandoned or (self._stopping and not lane.has_left):
            return False
        wakeups = self._idle.wakeups
        if not lane.has_left:
            at = self._leases.next_ready_at()
            if at is None or at > self._database.now():
                return self._wait_for_work(lane, wakeups, at)
            self._idle.wake_one()
        self._go_on(lane)
        return True

    def _wait_for_work(self, lane: Lane, wakeups: int, until: Micros | None) -> bool:
        """Sleep until the bell rings, or until the next delayed job is due. False where the work is done."""
        if self._until_idle and not self._leases.is_work_left():
            self.stop()
            return False
        seconds = None if until is None else max(0.0, (until - self._database.now()) / SECOND)
        if self._idle.sleep(wakeups, seconds) and not self._stopping:
            # A claim tells what a look would, but stands in the way of others: only where there should be work.
            if self._was_signal_for_us:
                self._go_on(lane)
            else:
                self._database.writer_queue.wait_for_current()  # whoever rang may not have committed yet
        return True

    def _go_on(self, lane: Lane) -> None:
        """Settle what is done and claim the next jobs in one transaction, then execute them."""
        was_idle = not lane.has_left
        most = 0 if self._stopping else lane.batch(self._max_claim, self._quick_seconds)
        claimed = self._settle_and_claim(lane, most)
        if was_idle:
            self._was_signal_for_us = bool(claimed)
            if claimed:
                self._idle.wake_one()
        self._execute(lane, claimed)

    def _execute(self, lane: Lane, claimed: list[JobRow]) -> None:
        lane.take(claimed)
        shift, flushed = self._shift(lane), time.monotonic()
        while jobs := lane.next_jobs(self._room_for, give_back=self._stopping):
            worker, began = self._workers[jobs[0].kind], time.monotonic()
            try:
                for conclusion in self._executor.execute(jobs, worker, shift):
                    lane.comes_to(conclusion)
            except BaseException:
                lane.gives_up()
                raise
            if not lane.ends(len(jobs), (time.monotonic() - began) / len(jobs)):
                return
            if time.monotonic() - flushed > self._flush_seconds and lane.has_more:
                self._settle_and_claim(lane, 0)
                flushed = time.monotonic()

    def _room_for(self, job: JobRow) -> BatchLimit:
        return self._executor.room(self._workers[job.kind])

    def _shift(self, lane: Lane) -> Shift:
        def turns_to(job: JobRow) -> bool:
            is_ours = lane.turns_to(job, time.monotonic(), self._workers[job.kind].timeout)
            if is_ours:
                self._presence.starts(lane.slot, job.id, job.attempt)
            return is_ours

        return Shift(turns_to, lane.waits, partial(self._settle_left, lane))

    def _settle_left(self, lane: Lane) -> None:
        if lane.has_left:
            self._settle_and_claim(lane, 0)

    def _settle_and_claim(self, lane: Lane, most: int) -> list[JobRow]:
        done, unstarted = lane.collect()
        began = time.monotonic()
        try:
            claimed = self._leases.turn_over(done, unstarted, most)
        except BaseException:
            lane.put_back(done, unstarted)
            raise
        # On a slow disk fewer commits are worth more than the sight of each result at once.
        took = time.monotonic() - began
        self._flush_seconds = max(FLUSH_SECONDS, 2 * took)
        self._quick_seconds = min(max(QUICK_SECONDS, 10 * took), SLOW_SECONDS / 2)
        return claimed

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self.stop()

    @staticmethod
    def _is_busy(error: BaseException) -> bool:
        return isinstance(error, LcpError) and error.code is ErrorCode.DATABASE_BUSY

    # -- the watch: the thread that called `run`

    def _watch(self) -> None:
        looked = learnt = time.monotonic()
        while any(lane.is_alive for lane in self._lanes):
            try:
                wait_for(self._lanes, self._upkeep.seconds_until_due(WATCH_SECONDS))
                if any(lane.is_busy for lane in self._lanes):
                    self._leases.renew()
                self._tend_lanes(time.monotonic())
                if not self._stopping:
                    self._upkeep.look(self._leases.runner_id)
                if self._share.away and time.monotonic() - learnt > ROOT_SECONDS:
                    learnt = time.monotonic()
                    self._share.forget()
                if time.monotonic() - looked > self._look_seconds:
                    looked = time.monotonic()
                    self._look()
            except KeyboardInterrupt as error:
                if self._error is not None:  # the second one: leave everything
                    raise
                self._fail(error)
            except Exception as error:  # noqa: BLE001 -- `run` raises it
                if not self._is_busy(error):
                    self._fail(error)

    def _look(self) -> None:
        """The fallback for rings that did not arrive, and the end where somebody else finished the last job."""
        at = self._leases.next_ready_at()
        if (at is not None and at <= self._database.now()) or (
            self._until_idle and not self._leases.is_work_left()
        ):
            self._idle.wake_one()

    def _tend_lanes(self, now: float) -> None:
        """Fail attempts beyond their timeout, and give back what waits behind a slow one.

        A thread that hangs cannot be stopped; it is left, and another one takes over.
        """
        for lane in list(self._lanes):
            job = lane.abandon_if_late(now)
            if job is not None:
                worker = self._workers[job.kind]
                message = f"job {job.id} ({job.kind}) has to end within {worker.timeout:g} s; it runs on"
                lane.add(finish(job, worker, Failed(ErrorCode.TIMEOUT, message)))
                self._open_lane()
            lane.free_waiting(now, SLOW_SECONDS)
            self._settle_left(lane)
            if lane.is_abandoned:
                self._lanes.remove(lane)

    def _rescue_at_once(self) -> None:
        """Not to wait for the watch. What the database has against it, the watch meets as well, and tells."""
        if not self._stopping:
            with suppress(LcpError, OSError):
                self._upkeep.rescue(self._leases.runner_id)


BEAT: Micros = 3 * SECOND


class Leases:
    """What one runner has taken of a scope, as far as it is its `share`. Any thread may call; `enter` comes first."""

    def __init__(
        self, database: Database, scope: queue.Scope, share: ServedMissions, jitter: random.Random
    ) -> None:
        self._database = database
        self._scope = scope
        self._share = share
        self._jitter = jitter
        self._alive_until: Micros = 0
        self.runner_id = 0

    def enter(self, uid: str, host: Host) -> None:
        """Become a runner that others know of."""
        self.runner_id = self._database.write(
            lambda tx: queue.add_runner(tx, uid=uid, host=host.name, boot=host.boot, pid=os.getpid())
        )

    def leave(self) -> None:
        with suppress(LcpError):  # the lock that the process gives up says the same
            self._database.write(lambda tx: queue.leave(tx, self.runner_id))

    def turn_over(self, done: Sequence[Finished], unstarted: Sequence[JobRow], most: int) -> list[JobRow]:
        """Settle what is done, give back what was not started, and claim up to `most` others in one transaction."""

        def work(tx: Tx) -> tuple[list[JobRow], Micros]:
            ledger = ledger_of(tx)
            ledger.lock(
                {finished.job.mission_id for finished in done} | {job.mission_id for job in unstarted}
            )
            settle_finished(ledger, done, self._jitter)
            for job in unstarted:
                queue.release(ledger, job.copy())
            claimed = queue.claim(ledger, self._scope, self.runner_id, most, self._share)
            # A runner that had nothing to do did not renew its leases.
            is_stale = bool(claimed) and tx.now > self._alive_until - queue.LEASE // 2
            return claimed, queue.beat(tx, self.runner_id) if is_stale else self._alive_until

        claimed, self._alive_until = self._database.write(work)
        return claimed

    def settle(self, tx: Tx, finished: FinishedJob) -> None:
        settle(ledger_of(tx), finished, self._jitter)

    def renew(self) -> None:
        """Make all of them last longer, if it is time for that."""
        if self._database.now() > self._alive_until - queue.LEASE + BEAT:
            self._alive_until = self._database.write(lambda tx: queue.beat(tx, self.runner_id))

    def next_ready_at(self) -> Micros | None:
        """When there is something to claim (0: now); None where nothing is queued."""
        return self._database.read(lambda tx: queue.next_ready_at(tx, self._scope, self._share))

    def is_work_left(self) -> bool:
        """Whether anything of the share is queued, delayed or leased to anybody."""
        return self._database.read(lambda tx: queue.has_open(tx, self._scope, self._share))
