"""The leases of a runner: jobs are settled and claimed in one transaction, and stay its own while it is alive."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from lcp_engine.clock import Micros
from lcp_engine.core.limits.permits import Limit
from lcp_engine.engine.points import claim_gate
from lcp_engine.engine.settle import Finished, FinishedJob, settle, settle_finished
from lcp_engine.errors import LcpError
from lcp_engine.store import queue
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import Host
from lcp_engine.store.host.roots import ServedMissions
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.row_types import JobRow

HEARTBEAT_SECONDS = 3.0
IDLE_HEARTBEAT_SECONDS = 30.0


class Leases:
    """The leases of one runner: which jobs of a scope it claims. Any thread may call; `register` comes first."""

    def __init__(
        self,
        database: Database,
        scope: queue.Scope,
        served: ServedMissions,
        jitter: random.Random,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        endpoint_of: Callable[[str], tuple[str, Limit] | None] = lambda spec: None,
    ) -> None:
        self._database = database
        self._scope = scope
        self._served = served
        self._throttle = claim_gate().open(scope, served, monotonic, endpoint_of)
        self._jitter = jitter
        self._monotonic = monotonic
        self._renewed = -math.inf
        self._was_idle = -math.inf
        self._silent_roots: frozenset[str] = frozenset()
        self.runner_id = 0

    def register(self, uid: str, host: Host, limits: Mapping[str, Limit]) -> None:
        """Make the runner known to others, and the limits of its kinds."""
        self._database.write(lambda tx: claim_gate().state(tx, limits))
        self.runner_id = self._database.write(
            lambda tx: queue.add_runner(tx, uid=uid, host=host.name, boot=host.boot, pid=os.getpid())
        )

    def unregister(self) -> None:
        with suppress(LcpError):  # the lock that the process releases says the same
            self._database.write(lambda tx: queue.leave(tx, self.runner_id))

    def settle_and_claim(
        self, finished: Sequence[Finished], returned: Sequence[JobRow], most: int
    ) -> list[JobRow]:
        """Settle finished jobs, release those not started, and claim up to `most` others, in one transaction."""
        now = self._monotonic()
        # An idle runner does not renew its leases.
        is_stale = now - self._renewed > queue.LEASE_SECONDS / 2
        self._throttle.note_ended([*(one.job for one in finished), *returned])

        def work(tx: Tx) -> tuple[list[JobRow], frozenset[str]]:
            ledger = ledger_of(tx)
            ledger.lock({one.job.mission_id for one in finished} | {job.mission_id for job in returned})
            settle_finished(ledger, finished, self._jitter)
            for job in returned:
                queue.release(ledger, job.copy())
            self._throttle.give_back(ledger, returned)
            claimed = queue.claim(
                ledger, self._scope, self.runner_id, most, self._served, throttle=self._throttle
            )
            if claimed and is_stale:
                queue.beat(tx, self.runner_id)
            return claimed, self._served.take_over(tx)

        claimed, taken_over = self._database.write(work)
        if taken_over:
            self._served.note_taken_over(taken_over)
        if claimed and is_stale:
            self._renewed = now
        return claimed

    def settle(self, tx: Tx, finished: FinishedJob) -> None:
        """Settle one job in the caller's transaction."""
        settle(ledger_of(tx), finished, self._jitter)

    def renew(self, *, is_idle: bool = False) -> None:
        """Renew all leases, if it is time for that; an idle runner has none, and says less often that it is there."""
        now = self._monotonic()
        if is_idle:
            # Until it has said so once, others know it by a lease that is shorter than the pauses of idle ones.
            pause = IDLE_HEARTBEAT_SECONDS if self._was_idle > self._renewed else HEARTBEAT_SECONDS
            if now - max(self._renewed, self._was_idle) > pause:
                self._database.write(lambda tx: queue.beat(tx, self.runner_id, is_idle=True))
                self._was_idle = now
        elif now - self._renewed > HEARTBEAT_SECONDS:
            self._database.write(lambda tx: queue.beat(tx, self.runner_id))
            self._renewed = now

    def held(self) -> frozenset[tuple[int, int]]:
        """The jobs that are leased to this runner, each with its attempt."""
        jobs = self._database.read(lambda tx: queue.leased_by(tx, self.runner_id))
        return frozenset((job.id, job.attempt) for job in jobs)

    def note_silent_roots(self, roots: frozenset[str]) -> None:
        """Let others know which roots do not answer this runner."""
        if roots != self._silent_roots:
            self._database.write(lambda tx: queue.note_silent_roots(tx, self.runner_id, roots))
            self._silent_roots = roots

    def next_ready_at(self) -> Micros | None:
        """When there is something to claim (0: now); None if nothing is queued."""

        def query(tx: Tx) -> list[Micros | None]:
            return [queue.next_ready_at(tx, self._scope, self._served), self._throttle.next_look(tx)]

        return min((at for at in self._database.read(query) if at is not None), default=None)

    def has_open(self) -> bool:
        """True if anything of the scope is queued, delayed or leased, by any runner, or its root may still answer."""
        returned = self._served.returned
        if self._database.read(lambda tx: queue.has_open(tx, self._scope, self._served)):
            return True
        return self._served.is_waiting or self._served.returned != returned
