"""Execute jobs: lanes claim, execute and settle; a watch keeps leases, ends what hangs, rescues what died."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from uuid import uuid4

from lcp_engine.clock import SECOND
from lcp_engine.engine.settling import Settling, rescue, settle
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.execution import Conclusion, Executor
from lcp_engine.lane import Lane
from lcp_engine.presence import Presence, forget, is_dead, started_jobs, this_host
from lcp_engine.site import Site
from lcp_engine.store import queue
from lcp_engine.store.database import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.records import JobRow, RunnerRow

LOOK_SECONDS = 1.0
BEAT_SECONDS = 3.0
MAX_CLAIM = 100
FLUSH_SECONDS = 0.002
QUICK_SECONDS = 0.02


class Runner:
    """A process's share of the work.

    `threads` jobs run at once. With `mission_id` only that mission's, with `kinds` only these. With `until_idle` it
    ends when nothing in this scope is queued, delayed or leased; else when it is stopped.
    """

    def __init__(
        self,
        site: Site,
        *,
        threads: int = 1,
        mission_id: int | None = None,
        kinds: Sequence[str] | None = None,
        until_idle: bool = False,
        max_claim: int = MAX_CLAIM,
        jitter: random.Random | None = None,
    ) -> None:
        self._site = site
        self._database = site.database
        known = sorted(site.bench.workers)
        unknown = sorted(set(kinds or ()) - set(known))
        if unknown:
            message = f"no worker executes kind {unknown[0]!r}; there are {', '.join(known)}"
            raise LcpError(ErrorCode.NO_WORKER, message)
        self._scope = queue.Scope(tuple(known if kinds is None else sorted(kinds)), mission_id)
        self._threads = threads
        self._until_idle = until_idle
        self._max_claim = max_claim
        self._jitter = jitter or random.Random()
        self._changed = threading.Condition()
        self._rings = 0
        self._stopping = False
        self._error: BaseException | None = None
        self._lanes: list[Lane] = []
        self._uid = uuid4().hex
        self._host = this_host()
        self._executor = Executor(site, self._settle_now)
        self._id = 0

    def run(self) -> None:
        """Work until idle or stopped. Raises what ended it otherwise (a database that is gone)."""
        self._presence = Presence(self._site.runtime, self._uid)
        host = self._host
        self._id = self._database.write(
            lambda tx: queue.add_runner(tx, uid=self._uid, host=host.name, boot=host.boot, pid=os.getpid())
        )
        end_listening = self._site.bell.listen(self._uid, self._ring)
        try:
            self._rescue()
            for _ in range(self._threads):
                self._open_lane()
            self._watch()
        finally:
            end_listening()
            self._leave()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Finish the jobs under way, give back the others, and end. May be called from a signal handler or a thread."""
        self._stopping = True
        # Not from this thread: a signal may have interrupted it while it holds the lock.
        threading.Thread(target=self._ring, daemon=True).start()

    # -- lanes: each is one thread

    def _open_lane(self) -> None:
        lane = Lane(len(self._lanes))
        self._lanes.append(lane)
        lane.start(lambda: self._drive(lane))

    def _drive(self, lane: Lane) -> None:
        try:
            while self._turn_round(lane):
                pass
        except BaseException as error:
            self._error = self._error or error
            self.stop()

    def _turn_round(self, lane: Lane) -> bool:
        """Settle what is done and claim the next jobs in one transaction, then execute them. False at the end."""
        heard = self._rings
        claimed = self._settle_and_claim(lane, 0 if self._stopping else lane.batch(self._max_claim, QUICK_SECONDS))
        if lane.is_abandoned:
            return False
        if claimed:
            self._execute(lane, claimed)
            return True
        if self._stopping or (self._until_idle and self._is_idle()):
            self.stop()
            return False
        with self._changed:
            if self._rings == heard:
                self._changed.wait()
        return True

    def _execute(self, lane: Lane, claimed: list[JobRow]) -> None:
        lane.take(claimed)
        flushed = time.monotonic()
        while (job := lane.next_job(give_back=self._stopping)) is not None:
            self._presence.starts(lane.slot, job.id, job.attempt)
            worker = self._site.bench.workers[job.kind]
            lane.begins(job, time.monotonic() + worker.timeout)
            conclusion = self._executor.execute(job, worker)
            if not lane.ends(conclusion):
                return
            if time.monotonic() - flushed > FLUSH_SECONDS and lane.has_more:
                self._settle_and_claim(lane, 0)
                flushed = time.monotonic()

    def _settle_and_claim(self, lane: Lane, most: int) -> list[JobRow]:
        done, unstarted = lane.collect()

        def work(tx: Tx) -> list[JobRow]:
            ledger = ledger_of(tx)
            ledger.lock({conclusion.job.mission_id for conclusion in done} | {job.mission_id for job in unstarted})
            for conclusion in done:
                self._conclude(tx, conclusion)
            for job in unstarted:
                queue.release(ledger, copy(job), "the runner stops")
            return queue.claim(ledger, self._scope, self._id, most)

        if not done and not unstarted and (most == 0 or not self._has_ready()):
            return []
        return self._database.write(work)

    def _conclude(self, tx: Tx, conclusion: Conclusion) -> None:
        conclusion.settle(ledger_of(tx), self._jitter)

    def _settle_now(self, tx: Tx, settling: Settling) -> None:
        settle(ledger_of(tx), settling, self._jitter)

    def _has_ready(self) -> bool:
        at = self._database.read(lambda tx: queue.next_ready_at(tx, self._scope))
        return at is not None and at <= self._database.now()

    def _is_idle(self) -> bool:
        return not self._database.read(lambda tx: queue.has_open(tx, self._scope))

    # -- the watch: the thread that called `run`

    def _watch(self) -> None:
        beaten = time.monotonic()
        while any(lane.is_alive for lane in self._lanes):
            self._wait_for_lanes(self._seconds_to_look())
            try:
                now = time.monotonic()
                if now - beaten > BEAT_SECONDS and any(lane.is_busy for lane in self._lanes):
                    self._database.write(lambda tx: queue.beat(tx, self._id))
                    beaten = now
                self._end_hanging(now)
                if not self._stopping:
                    self._rescue()
                    self._look()
            except LcpError as error:
                if error.code is not ErrorCode.DATABASE_BUSY:
                    self._error = self._error or error
                    self.stop()

    def _wait_for_lanes(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for lane in self._lanes:
            lane.join(max(0.0, end - time.monotonic()))
            if lane.is_alive:
                return

    def _seconds_to_look(self) -> float:
        """A second, or less where a delayed job is due before."""
        if self._stopping:
            return LOOK_SECONDS
        at = self._database.read(lambda tx: queue.next_ready_at(tx, self._scope))
        now = self._database.now()
        return LOOK_SECONDS if at is None or at <= now else min(LOOK_SECONDS, (at - now) / SECOND)

    def _look(self) -> None:
        """The fallback for rings that did not arrive, and the end where somebody else finished the last job."""
        if self._has_ready() or (self._until_idle and self._is_idle()):
            self._ring()

    def _ring(self) -> None:
        with self._changed:
            self._rings += 1
            self._changed.notify_all()

    def _end_hanging(self, now: float) -> None:
        """Fail attempts beyond their timeout. Their threads cannot be stopped; they are left, and others take over."""
        for lane in list(self._lanes):
            job = lane.abandon_if_late(now)
            if job is None:
                continue
            seconds = self._site.bench.workers[job.kind].timeout
            failed = Failed(ErrorCode.TIMEOUT, f"job {job.id} ({job.kind}) has to end within {seconds:g} s; it runs on")
            lane.add(Conclusion(job, Settling(job, failed, self._site.bench.workers[job.kind].backoff)))
            self._settle_and_claim(lane, 0)
            self._open_lane()

    def _rescue(self) -> None:
        """Take back the jobs of runners that died."""
        for runner in self._database.read(lambda tx: queue.leasing_runners(tx, self._id)):
            dead = is_dead(runner, self._host, self._site.runtime)
            if dead or (dead is None and runner.alive_until < self._database.now()):
                started = started_jobs(runner, self._site.runtime)
                self._database.write(lambda tx, runner=runner, started=started: _take_back(tx, runner, started))  # type: ignore[misc]  # defaults bind the loop's values
                if dead:
                    forget(runner, self._site.runtime)

    def _leave(self) -> None:
        with suppress(LcpError):  # the lock says the same
            self._database.write(lambda tx: queue.leave(tx, self._id))
        self._presence.leave()


def _take_back(tx: Tx, runner: RunnerRow, started: set[tuple[int, int]] | None) -> None:
    ledger = ledger_of(tx)
    for job in queue.leased_by(tx, runner.id):
        has_started = started is None or (job.id, job.attempt) in started
        rescue(ledger, replace(job), runner, has_started=has_started)
