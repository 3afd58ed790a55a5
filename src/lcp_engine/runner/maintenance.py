"""Maintain all missions, as any runner may: rescue dead runners' jobs, expire holds."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

from lcp_engine.changes.recovery import close_each
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.people.approvals import expire
from lcp_engine.engine.settle import rescue
from lcp_engine.errors import LcpError
from lcp_engine.runner.lease_watch import LOOK_SECONDS, LeaseWatch
from lcp_engine.sandbox.file_access import ConfinedThreads, start_thread
from lcp_engine.store import queue
from lcp_engine.store.changes import left_open
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import Host, forget, is_dead, is_stopped, started_jobs
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.people import due_holds
from lcp_engine.store.row_types import ChangeRow, RunnerRow

ROOT_SECONDS = 0.5
"""How long a runner waits for the file system of a root before it goes on with other things."""
END_SECONDS = 5.0
"""The same before it ends."""
HANG_SECONDS = 10.0
"""After how long it says that a root does not answer."""


class Maintenance:
    """Work of one runner for all missions. Any thread may call."""

    def __init__(
        self,
        instance: Instance,
        threads: ConfinedThreads,
        host: Host,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instance = instance
        self._database = instance.database
        self._recovery = Recovery(instance.database, threads)
        self._host = host
        self._lease_watch = LeaseWatch()
        self._monotonic = monotonic

    def expire_holds(self) -> None:
        """Reject the held jobs whose `hold_timeout` has passed."""
        now = self._database.now()
        due = self._database.read(lambda tx: due_holds(tx, now))
        if due:
            self._database.write(lambda tx: expire(ledger_of(tx), due))

    def rescue(self, runner_id: int) -> None:
        """Take back the jobs of dead runners, and have the intents closed that they left open.

        A runner is dead if the kernel says so, or if this process has seen it not renew its leases for as long as they
        last: a stopped process keeps its lock, and one of another machine has none here.
        """
        others = self._database.read(lambda tx: queue.leasing_runners(tx, runner_id))
        self._lease_watch.look(others, self._monotonic())
        if self._lease_watch.has_doubts():
            self._database.write(lambda tx: queue.beat(tx, runner_id))
        for runner in others:
            dead = is_dead(runner, self._host, self._instance.runtime)
            if dead or self._lease_watch.is_silent(runner):
                self._take_back(runner, dead)
            if dead:
                forget(runner, self._instance.runtime)
        self._recovery.start_due()

    @property
    def silent_roots(self) -> frozenset[str]:
        """Roots that do not answer, so that what dead runners left open there has to wait."""
        return self._recovery.hanging

    def finish(self) -> None:
        """Wait a moment for what is under way."""
        self._recovery.wait(END_SECONDS)

    def seconds_until_due(self, most: float) -> float:
        """Seconds until the next look at other runners' leases, at most `most` seconds."""
        return min(most, LOOK_SECONDS) if self._lease_watch.is_watching else most

    def _take_back(self, runner: RunnerRow, dead: bool | None) -> None:
        started = started_jobs(runner, self._instance.runtime)
        is_charged = not (dead is False and is_stopped(runner))

        def work(tx: Tx) -> None:
            ledger = ledger_of(tx)
            leased = queue.leased_by(tx, runner.id)
            ledger.lock(job.mission_id for job in leased)
            current = queue.locked_runner(tx, runner.id)
            if current is None or not (dead or current == runner):
                return
            for job in leased:
                has_started = started is None or (job.id, job.attempt) in started
                rescue(ledger, job, current, has_started=has_started, is_charged=is_charged)

        self._database.write(work)


class Recovery:
    """Closes left-open intents in a thread for each root: where a file system hangs, only its own root waits for it."""

    def __init__(self, database: Database, threads: ConfinedThreads) -> None:
        self._database = database
        self._threads = threads
        self._lock = threading.Lock()
        self._running: dict[str, threading.Thread] = {}
        self._since: dict[str, float] = {}
        self.hanging: frozenset[str] = frozenset()

    def start_due(self) -> None:
        """Start what is due and is not under way, and wait for it a moment. Re-raises database errors."""
        due: dict[str, list[ChangeRow]] = defaultdict(list)
        for change in self._database.read(left_open):
            due[change.root].append(change)
        with self._lock:
            self._running = {root: one for root, one in self._running.items() if one.is_alive()}
            started = due.keys() - self._running.keys()
            for root in started:
                # A daemon: the end of a process does not wait for a file system.
                thread = threading.Thread(
                    target=self._close, args=(due[root],), name="lcp-recovery", daemon=True
                )
                start_thread(thread)
                self._running[root], self._since[root] = thread, time.monotonic()
        if started:
            self.wait(ROOT_SECONDS)
        now = time.monotonic()
        self._report({root for root in list(self._running) if now - self._since[root] > HANG_SECONDS})

    def wait(self, seconds: float) -> None:
        """Wait until all that is under way has ended, at most `seconds`."""
        until = time.monotonic() + seconds
        for thread in list(self._running.values()):
            thread.join(max(0.0, until - time.monotonic()))

    def _close(self, changes: Sequence[ChangeRow]) -> None:
        with suppress(LcpError):  # of the database: the watchdog meets and reports them
            close_each(self._database, changes, self._threads)

    def _report(self, waiting: set[str]) -> None:
        """Say once of each root that its file system does not answer."""
        for root in waiting - self.hanging:
            logging.getLogger("lcp_engine").warning(
                "root %s does not answer; what a dead runner left open there has to wait", root
            )
        self.hanging = frozenset(waiting)
