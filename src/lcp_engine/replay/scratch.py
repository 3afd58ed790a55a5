"""Hold the scratch database and root where a mission is done again, beside its history."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cached_property

from lcp_engine.changes.recovery import APPLIED
from lcp_engine.core.job_states import State
from lcp_engine.engine.instance import Site
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.settle import Finished, FinishedJob, settle, settle_finished
from lcp_engine.errors import Failed
from lcp_engine.runner.executor import Executor
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.locks import lock, only
from lcp_engine.sandbox.root import Root
from lcp_engine.store import queue
from lcp_engine.store.changes import content
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.queries.archive import Archive, PastEvent, PastJob
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.workers.base import Hold


class Strayed(Exception):
    """What the history tells next cannot be done: the mission took another way before."""


class HistoryClock:
    """Tells the time of the event that is done again, so that limits of time are what they were."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Scratch:
    """Where the mission of `past` is done again: `site`, whose database is empty at first, and `root`.

    `contents` is the database that holds the pre-images. Jobs are known by their place in the order in which they
    were stored, which is their id here (`ids`). `replied`: the jobs of then whose reply is stored here by now.
    """

    def __init__(self, site: Site, past: Archive, root: Root, contents: Database) -> None:
        self.site = site
        self.past = past
        self.root = root
        self.mission_id = 1
        self.runner_id = 0
        self.replied: set[int] = set()
        self.ids = {job.id: place for place, job in enumerate(past.jobs, start=1)}
        self._contents = contents
        self._chance = random.Random(0)  # noqa: S311 -- no secret
        self._executor = Executor(site, self._settle_now)
        self._jobs = {job.id: job for job in past.jobs}
        self._hashes: dict[str, str | None] = {}

    @cached_property
    def applied(self) -> list[ChangeRow]:
        """What the mission's jobs did to files, in the order of their intents."""
        return [change for change in self.past.changes if change.state == APPLIED and change.undoes is None]

    def known(self, event: PastEvent) -> PastJob:
        """The job of then that an event is about."""
        past = None if event.job_id is None else self._jobs.get(event.job_id)
        if past is None:
            raise Strayed(f"job {event.job_id} of event {event.seq} is not in the history")
        return past

    def job(self, tx: Tx, past: PastJob) -> JobRow:
        """The job here that is `past`."""
        found = queue.find_jobs(tx, [self.ids[past.id]])
        if not found:
            raise Strayed(f"job {past.id} ({past.kind}) was requested; now it is not")
        if found[0].kind != past.kind:
            raise Strayed(f"job {past.id} was a {past.kind}; now it is a {found[0].kind}")
        return found[0]

    def current(self, past: PastJob) -> JobRow:
        """The job here that is `past`, in a look of its own."""
        return self.site.database.read(lambda tx: self.job(tx, past))

    def leased(self, past: PastJob) -> JobRow:
        """The job here that is `past`, which has to be running."""
        job = self.current(past)
        if job.state is not State.RUNNING:
            raise Strayed(f"job {past.id} ({past.kind}) was running; now it is {job.state}")
        return job

    def books(self, work: Callable[[Ledger], object]) -> None:
        """Do `work` in a transaction."""
        self.site.database.write(lambda tx: work(ledger_of(tx)))

    def settle(self, job: JobRow, outcome: Succeeded | Failed | Hold) -> None:
        self.books(lambda ledger: settle(ledger, FinishedJob(job.copy(), outcome), self._chance))

    def settle_finished(self, finished: Finished) -> None:
        self.books(lambda ledger: settle_finished(ledger, [finished], self._chance))

    def execute(self, past: PastJob, job: JobRow) -> Finished | None:
        """Have the job's worker do it; None where it is settled by that."""
        worker = self.site.admission.workers.get(past.kind)
        if worker is None:
            raise Strayed(f"job {past.id} needs a worker for the kind {past.kind!r}; none is installed")
        return next(self._executor.execute([job], worker), None)

    def change(self, past: PastJob, job: JobRow, change: ChangeRow) -> None:
        """Change the file for real, after what others did to it meanwhile."""
        if self._hashes.get(change.path) != change.sha256_before:
            self.restore(change.path, change.sha256_before)
        finished = self.execute(past, job)
        self._hashes[change.path] = change.sha256_after
        if finished is not None:
            self.settle_finished(finished)

    def restore(self, path: str, sha: str | None) -> None:
        """Make the file what it was before a change."""
        data = None if sha is None else self._contents.read(lambda tx: content(tx, sha))
        if data is not None or self._hashes.get(path) is not None:
            with lock([(self.root, path)]) as locked:
                file = only(locked)
                file.remove() if data is None else file.replace(data, temporary_name())
        self._hashes[path] = sha

    def _settle_now(self, tx: Tx, finished: FinishedJob) -> None:
        settle(ledger_of(tx), finished, self._chance)
