"""Execute jobs: lanes claim, execute and settle; a watch keeps leases, ends what hangs, rescues what died."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from uuid import uuid4

from pydantic import BaseModel

from lcp_engine.clock import SECOND, Micros
from lcp_engine.departures import listen_for_departures
from lcp_engine.engine.expiring import expire
from lcp_engine.engine.settling import Settling, rescue, settle
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.execution import Conclusion, Executor, conclude
from lcp_engine.isolation.walls import walls_of
from lcp_engine.lane import Lane
from lcp_engine.leftovers import close_left_open
from lcp_engine.notice import Notice
from lcp_engine.presence import Presence, forget, is_dead, started_jobs, this_host
from lcp_engine.resting import Rest
from lcp_engine.restoring import UNDO
from lcp_engine.roots import Roots, Share
from lcp_engine.scheduler import Scheduler
from lcp_engine.site import Site
from lcp_engine.store import queue
from lcp_engine.store.expiries import due_holds
from lcp_engine.store.ledger import ledger_of, spec_and_root
from lcp_engine.store.records import JobRow, RunnerRow
from lcp_engine.store.transaction import Tx
from lcp_engine.workers.base import Worker

LOOK_SECONDS = 1.0
WATCH_SECONDS = 1.0
SLOW_SECONDS = 0.5
BEAT: Micros = 3 * SECOND
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
        self._walls = walls_of(site.isolation)
        if threads < 1:
            raise LcpError(ErrorCode.INVALID_ARGUMENT, f"threads has to be 1 or more; it is {threads}")
        if mission_id is not None:
            site.database.read(lambda tx: spec_and_root(tx, mission_id))
        self._workers = {**site.bench.workers, UNDO.kind: UNDO}
        known = sorted(self._workers)
        unknown = sorted(set(kinds or ()) - set(known))
        if unknown:
            message = f"no worker executes kind {unknown[0]!r}; there are {', '.join(known)}"
            raise LcpError(ErrorCode.NO_WORKER, message)
        self._scope = queue.Scope(tuple(known if kinds is None else sorted(kinds)), mission_id)
        self._threads = threads
        self._until_idle = until_idle
        self._max_claim = max_claim
        self._look_seconds = look_seconds
        self._jitter = jitter or random.Random()  # noqa: S311 -- no secret
        self._rest = Rest()
        # False where others were quicker, or execute what it rang for.
        self._was_rung_for_us = True
        self._stopping = False
        self._error: BaseException | None = None
        self._lanes: list[Lane] = []
        self._slots = count()
        self._uid = uuid4().hex
        self._host = this_host()
        # A SQLite file serves one machine: a root that is not there is a fault, and no other machine's.
        roots = roots or Roots(only_here=site.database.backend.dialect.name == "sqlite")
        self._share = Share(roots)
        self._executor = Executor(site, self._settle_now, roots)
        self._scheduler = Scheduler(site.database, site.clock) if mission_id is None else None
        self._id = 0
        self._alive_until: Micros = 0
        self._next_expiry: Micros | None = None
        self._flush_seconds = FLUSH_SECONDS
        self._quick_seconds = QUICK_SECONDS

    def run(self) -> None:
        """Work until idle or stopped. Raises what ended it otherwise (a database that is gone)."""
        self._presence = Presence(self._site.runtime, self._uid)
        notice = Notice(self._database, self._site.on_wait)
        if self._site.on_wait:
            self._database.on_waits = notice.begin
        try:
            self._enter()
            self._rest.open(self._site.bell.listen(self._uid, self._rest.call))
            end_watching = listen_for_departures(self._site.runtime, self._rescue_at_once)
            try:
                self._rescue()
                self._expire()
                self._launch_due()
                for _ in range(self._threads):
                    self._open_lane()
                self._watch()
            finally:
                end_watching()
                self._rest.close()
                self._leave()
        finally:
            self._presence.leave()
            notice.finish()
            self._executor.close()
        if self._error is not None:
            raise self._error

    def left_to_others(self) -> dict[str, int]:
        """How many queued jobs this runner has met and does not take, by the root that is not served here."""
        return self._database.read(self._share.left)

    def stop(self) -> None:
        """Finish the jobs under way, give back the others, and end. May be called from a signal handler or a thread."""
        self._stopping = True
        # Not from this thread: a signal may have interrupted it while it holds the lock.
        threading.Thread(target=self._rest.call_all, daemon=True).start()

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
        calls = self._rest.calls
        if not lane.has_left:
            at = self._next_ready_at()
            if at is None or at > self._database.now():
                return self._wait_for_work(lane, calls, at)
            self._rest.call()
        self._go_on(lane)
        return True

    def _wait_for_work(self, lane: Lane, calls: int, until: Micros | None) -> bool:
        """Sleep until the bell rings, or until the next delayed job is due. False where the work is done."""
        if self._until_idle and self._is_idle():
            self.stop()
            return False
        seconds = None if until is None else max(0.0, (until - self._database.now()) / SECOND)
        # A claim tells what a look would, but stands in the way of others who write: only where there should be work.
        if self._rest.sleep(calls, seconds) and self._was_rung_for_us and not self._stopping:
            self._go_on(lane)
        return True

    def _go_on(self, lane: Lane) -> None:
        """Settle what is done and claim the next jobs in one transaction, then execute them."""
        was_idle = not lane.has_left
        most = 0 if self._stopping else lane.batch(self._max_claim, self._quick_seconds)
        claimed = self._settle_and_claim(lane, most)
        if was_idle:
            self._was_rung_for_us = bool(claimed)
            if claimed:
                self._rest.call()
        self._execute(lane, claimed)

    def _execute(self, lane: Lane, claimed: list[JobRow]) -> None:
        lane.take(claimed)
        flushed = time.monotonic()
        while jobs := lane.next_jobs(self._joins, give_back=self._stopping):
            worker, began = self._workers[jobs[0].kind], time.monotonic()
            try:
                conclusions = self._executor.execute(jobs, worker, partial(self._turn_to, lane, worker))
            except BaseException:
                lane.gives_up()
                raise
            if not lane.ends(conclusions, (time.monotonic() - began) / len(jobs)):
                return
            if time.monotonic() - flushed > self._flush_seconds and lane.has_more:
                self._settle_and_claim(lane, 0)
                flushed = time.monotonic()

    def _joins(self, jobs: Sequence[JobRow], job: JobRow) -> bool:
        """Whether a job is executed together with others."""
        first = jobs[0]
        if (job.kind, job.mission_id) != (first.kind, first.mission_id):
            return False
        room = self._executor.room(self._workers[job.kind])
        return len(jobs) < room.jobs and sum(len(one.params) for one in (*jobs, job)) <= room.characters

    def _turn_to(self, lane: Lane, worker: Worker[BaseModel], job: JobRow) -> None:
        self._presence.starts(lane.slot, job.id, job.attempt)
        lane.turns_to(job, time.monotonic(), worker.timeout)

    def _settle_and_claim(self, lane: Lane, most: int) -> list[JobRow]:
        done, unstarted = lane.collect()

        def work(tx: Tx) -> tuple[list[JobRow], Micros]:
            ledger = ledger_of(tx)
            ledger.lock(
                {conclusion.job.mission_id for conclusion in done} | {job.mission_id for job in unstarted}
            )
            conclude(ledger, done, self._jitter)
            for job in unstarted:
                queue.release(ledger, job.copy(), "not started")
            claimed = queue.claim(ledger, self._scope, self._id, most, self._share)
            # A runner that had nothing to do did not renew its leases.
            is_stale = bool(claimed) and tx.now > self._alive_until - queue.LEASE // 2
            return claimed, queue.beat(tx, self._id) if is_stale else self._alive_until

        began = time.monotonic()
        try:
            claimed, self._alive_until = self._database.write(work)
        except BaseException:
            lane.put_back(done, unstarted)
            raise
        # On a slow disk fewer commits are worth more than the sight of each result at once.
        took = time.monotonic() - began
        self._flush_seconds = max(FLUSH_SECONDS, 2 * took)
        self._quick_seconds = min(max(QUICK_SECONDS, 10 * took), SLOW_SECONDS / 2)
        return claimed

    def _settle_now(self, tx: Tx, settling: Settling) -> None:
        settle(ledger_of(tx), settling, self._jitter)

    def _next_ready_at(self) -> Micros | None:
        return self._database.read(lambda tx: queue.next_ready_at(tx, self._scope, self._share))

    def _is_idle(self) -> bool:
        return not self._database.read(lambda tx: queue.has_open(tx, self._scope, self._share))

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
                self._wait_for_lanes(self._seconds_to_next_expiry(WATCH_SECONDS))
                self._beat()
                self._tend_lanes(time.monotonic())
                if not self._stopping:
                    self._rescue()
                    self._expire()
                    self._launch_due()
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

    def _wait_for_lanes(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for lane in self._lanes:
            lane.join(max(0.0, end - time.monotonic()))
            if lane.is_alive:
                return

    def _seconds_to_next_expiry(self, most: float) -> float:
        """How long the leases of all others last."""
        if self._next_expiry is None:
            return most
        return max(0.001, min(most, (self._next_expiry - self._database.now()) / SECOND))

    def _look(self) -> None:
        """The fallback for rings that did not arrive, and the end where somebody else finished the last job."""
        at = self._next_ready_at()
        if (at is not None and at <= self._database.now()) or (self._until_idle and self._is_idle()):
            self._rest.call()

    def _beat(self) -> None:
        """Renew the leases before they run out."""
        is_due = self._database.now() > self._alive_until - queue.LEASE + BEAT
        if is_due and any(lane.is_busy for lane in self._lanes):
            self._alive_until = self._database.write(lambda tx: queue.beat(tx, self._id))

    def _tend_lanes(self, now: float) -> None:
        """Fail attempts beyond their timeout, and give back what waits behind a slow one.

        A thread that hangs cannot be stopped; it is left, and another one takes over.
        """
        for lane in list(self._lanes):
            job = lane.abandon_if_late(now)
            if job is not None:
                worker = self._workers[job.kind]
                message = f"job {job.id} ({job.kind}) has to end within {worker.timeout:g} s; it runs on"
                lane.add(Conclusion(job, Settling(job, Failed(ErrorCode.TIMEOUT, message), worker.backoff)))
                self._open_lane()
            lane.free_waiting(now, SLOW_SECONDS)
            if lane.has_left:
                self._settle_and_claim(lane, 0)
            if lane.is_abandoned:
                self._lanes.remove(lane)

    def _rescue(self) -> None:
        """Take back the jobs of runners that died, and close the intents that nobody will come back to."""
        others = self._database.read(lambda tx: queue.leasing_runners(tx, self._id))
        now = self._database.now()
        self._next_expiry = min((one.alive_until for one in others if one.alive_until >= now), default=None)
        for runner in others:
            dead = is_dead(runner, self._host, self._site.runtime)
            # A process that was stopped keeps its lock, and its leases run out all the same.
            if dead or runner.alive_until < self._database.now():
                started = started_jobs(runner, self._site.runtime)
                self._database.write(partial(_take_back, runner=runner, started=started))
            if dead:
                forget(runner, self._site.runtime)
        close_left_open(self._database, self._walls)

    def _rescue_at_once(self) -> None:
        """Not to wait for the watch. What the database has against it, the watch meets as well, and tells."""
        if not self._stopping:
            with suppress(LcpError, OSError):
                self._rescue()

    def _expire(self) -> None:
        """Reject the held jobs that nobody decided on in time, of every mission: it is nobody's work."""
        now = self._database.now()
        due = self._database.read(lambda tx: due_holds(tx, now))
        if due:
            self._database.write(lambda tx: expire(ledger_of(tx), due))

    def _launch_due(self) -> None:
        """Launch the missions of schedules, whose jobs any runner may take."""
        if self._scheduler is not None:
            self._scheduler.launch_due()

    def _enter(self) -> None:
        name, boot = self._host.name, self._host.boot
        self._id = self._database.write(
            lambda tx: queue.add_runner(tx, uid=self._uid, host=name, boot=boot, pid=os.getpid())
        )

    def _leave(self) -> None:
        with suppress(LcpError):  # the lock says the same
            self._database.write(lambda tx: queue.leave(tx, self._id))


def _take_back(tx: Tx, runner: RunnerRow, started: set[tuple[int, int]] | None) -> None:
    ledger = ledger_of(tx)
    leased = queue.leased_by(tx, runner.id)
    ledger.lock(job.mission_id for job in leased)
    for job in leased:
        rescue(ledger, job, runner, has_started=started is None or (job.id, job.attempt) in started)
