"""Lease jobs to one runner, renew that, and give up what is done, as the database has it (R17)."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import suppress

from lcp_engine.clock import SECOND, Micros
from lcp_engine.engine.settle import Finished, FinishedJob, settle, settle_finished
from lcp_engine.errors import LcpError
from lcp_engine.store import queue
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import Host
from lcp_engine.store.host.roots import Share
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.row_types import JobRow

BEAT: Micros = 3 * SECOND


class Leases:
    """What one runner has taken of a scope, as far as it is its `share`. Any thread may call; `enter` comes first."""

    def __init__(self, database: Database, scope: queue.Scope, share: Share, jitter: random.Random) -> None:
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
                queue.release(ledger, job.copy(), "not started")
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
