"""Maintain all missions, as any runner may: rescue dead runners' jobs, expire holds, launch due schedules."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial

from pydantic import ValidationError

from lcp_engine.changes.recovery import close_left_open
from lcp_engine.clock import SECOND, Clock, Micros
from lcp_engine.core.recurrence import go_on
from lcp_engine.engine.approvals import expire
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.schedules import recurrence_of, tick
from lcp_engine.engine.settle import rescue
from lcp_engine.errors import OF_DATABASE, LcpError
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.store import queue
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import Host, forget, is_dead, started_jobs
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.people import due_holds
from lcp_engine.store.row_types import RunnerRow
from lcp_engine.store.schedules import ScheduleRow, due_schedules, note_trouble


class Maintenance:
    """What one runner does for all missions; it launches due schedules if it `launches`. Any thread may call."""

    def __init__(self, instance: Instance, threads: ConfinedThreads, host: Host, *, launches: bool) -> None:
        self._instance = instance
        self._database = instance.database
        self._threads = threads
        self._host = host
        self._scheduler = Scheduler(instance.database, instance.clock) if launches else None
        self._next_expiry: Micros | None = None
        self._renewals = _Renewals()

    def run_due(self, runner_id: int) -> None:
        """Do all that is due, as runner `runner_id`."""
        self.rescue(runner_id)
        self._expire()
        if self._scheduler is not None:
            self._scheduler.launch_due()

    def rescue(self, runner_id: int) -> None:
        """Take back the jobs of dead runners, and close the intents that they left open."""
        others = self._database.read(lambda tx: queue.leasing_runners(tx, runner_id))
        now = self._database.now()
        self._next_expiry = min((one.alive_until for one in others if one.alive_until >= now), default=None)
        renewing = self._renewals.observe(others)
        for runner in others:
            dead = is_dead(runner, self._host, self._instance.runtime)
            has_run_out = runner.alive_until < self._database.now()
            # A stopped process keeps its lock, but its leases expire; a runner that renews them is alive, whatever
            # its clock says.
            if dead or (has_run_out and not (dead is False and runner.id in renewing)):
                started = started_jobs(runner, self._instance.runtime)
                self._database.write(partial(_take_back, runner=runner, started=started))
            if dead:
                forget(runner, self._instance.runtime)
        close_left_open(self._database, self._threads)

    def seconds_until_due(self, most: float) -> float:
        """How long until the first lease of another runner expires, at most `most` seconds."""
        at = self._next_expiry
        return most if at is None else max(0.001, min(most, (at - self._database.now()) / SECOND))

    def _expire(self) -> None:
        """Reject the held jobs whose `hold_timeout` has passed."""
        now = self._database.now()
        due = self._database.read(lambda tx: due_holds(tx, now))
        if due:
            self._database.write(lambda tx: expire(ledger_of(tx), due))


class _Renewals:
    """Which runners renew their leases, by this process's own clock: clocks differ after the machine slept."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Micros, float]] = {}

    def observe(self, runners: Sequence[RunnerRow]) -> set[int]:
        """The ids of runners that are new here, or that renewed their leases within the last lease time."""
        now = time.monotonic()
        before, self._seen = self._seen, {}
        for runner in runners:
            until, since = before.get(runner.id, (runner.alive_until, now))
            self._seen[runner.id] = (runner.alive_until, since if until == runner.alive_until else now)
        return {
            runner_id for runner_id, (_, since) in self._seen.items() if now - since < queue.LEASE / SECOND
        }


def _take_back(tx: Tx, runner: RunnerRow, started: set[tuple[int, int]] | None) -> None:
    ledger = ledger_of(tx)
    leased = queue.leased_by(tx, runner.id)
    ledger.lock(job.mission_id for job in leased)
    for job in leased:
        rescue(ledger, job, runner, has_started=started is None or (job.id, job.attempt) in started)


class Scheduler:
    """Launches the missions of due schedules, each once, however many runners there are.

    A schedule that cannot be launched here is reported once, noted, and left to other runners.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._left: set[tuple[str, Micros]] = set()

    def launch_due(self) -> None:
        """Launch what is due. Re-raises database errors."""
        now = self._clock()
        for row in self._database.read(lambda tx: due_schedules(tx, now)):
            if (row.name, row.due_at) not in self._left:
                self._launch(row, now)

    def _launch(self, row: ScheduleRow, now: Micros) -> None:
        try:
            onward = go_on(recurrence_of(row), row.due_at, now)
            self._database.write(lambda tx: tick(ledger_of(tx), row, now, onward))
        except (LcpError, ValidationError) as error:
            if isinstance(error, LcpError) and error.code in OF_DATABASE:
                raise
            self._leave(row, " ".join(str(error).split()))

    def _leave(self, row: ScheduleRow, why: str) -> None:
        self._left.add((row.name, row.due_at))
        logging.getLogger("lcp_engine").warning("schedule %s cannot be launched here: %s", row.name, why)
        self._database.write(partial(_note, row=row, why=why))


def _note(tx: Tx, row: ScheduleRow, why: str) -> None:
    note_trouble(tx, row, why)
