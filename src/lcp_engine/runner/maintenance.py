"""Do for all missions what any runner may do: rescue what died, expire what was held too long, launch what is due."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from lcp_engine.changes.recovery import close_left_open
from lcp_engine.clock import SECOND, Micros
from lcp_engine.engine.instance import Site
from lcp_engine.engine.people.hold_timeout import expire
from lcp_engine.engine.settle import rescue
from lcp_engine.runner.scheduler import Scheduler
from lcp_engine.sandbox.confined_thread import Walls
from lcp_engine.store import queue
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import Host, forget, is_dead, started_jobs
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queries.hold_deadlines import due_holds
from lcp_engine.store.row_types import RunnerRow


class Upkeep:
    """The part of one runner, on its host; it launches missions only if it `launches`. Any thread may call."""

    def __init__(self, site: Site, walls: Walls, host: Host, *, launches: bool) -> None:
        self._site = site
        self._database = site.database
        self._walls = walls
        self._host = host
        self._scheduler = Scheduler(site.database, site.clock) if launches else None
        self._next_expiry: Micros | None = None
        self._renewals = _Renewals()

    def look(self, runner_id: int) -> None:
        """Do all that is due. `runner_id` is who does it."""
        self.rescue(runner_id)
        self._expire()
        if self._scheduler is not None:
            self._scheduler.launch_due()

    def rescue(self, runner_id: int) -> None:
        """Take back the jobs of runners that died, and close the intents that nobody will come back to."""
        others = self._database.read(lambda tx: queue.leasing_runners(tx, runner_id))
        now = self._database.now()
        self._next_expiry = min((one.alive_until for one in others if one.alive_until >= now), default=None)
        renewing = self._renewals.look(others)
        for runner in others:
            dead = is_dead(runner, self._host, self._site.runtime)
            has_run_out = runner.alive_until < self._database.now()
            # A process that was stopped keeps its lock, and its leases run out all the same; one that renews them
            # is alive, whatever its clock says.
            if dead or (has_run_out and not (dead is False and runner.id in renewing)):
                started = started_jobs(runner, self._site.runtime)
                self._database.write(partial(_take_back, runner=runner, started=started))
            if dead:
                forget(runner, self._site.runtime)
        close_left_open(self._database, self._walls)

    def seconds_until_due(self, most: float) -> float:
        """How long nothing can be due for a rescue, as far as leases tell: those of the others last so long."""
        at = self._next_expiry
        return most if at is None else max(0.001, min(most, (at - self._database.now()) / SECOND))

    def _expire(self) -> None:
        """Reject the held jobs that nobody decided on in time, of every mission: it is nobody's work."""
        now = self._database.now()
        due = self._database.read(lambda tx: due_holds(tx, now))
        if due:
            self._database.write(lambda tx: expire(ledger_of(tx), due))


class _Renewals:
    """Who renews leases, as it is seen from here: the clock of another process stood still while the machine slept."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Micros, float]] = {}

    def look(self, runners: Sequence[RunnerRow]) -> set[int]:
        """The ids of those that are new here, or that have renewed their leases within the time of one."""
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
