"""The scratch database and root in which a mission is re-enacted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Concatenate, ParamSpec

from lcp_engine.changes.recovery import APPLIED, APPLY_MODE, MERGE_MODE
from lcp_engine.core.job_states import State
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.settle import Finished, FinishedJob, settle, settle_finished
from lcp_engine.errors import Failed
from lcp_engine.features.replay.store.archive import Archive, PastEvent, PastJob
from lcp_engine.runner.executor import Executor
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.locks import lock, only
from lcp_engine.sandbox.root import Root
from lcp_engine.store import queue
from lcp_engine.store.changes import content
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.workers.base import Hold

P = ParamSpec("P")


class Diverged(Exception):
    """The next event of the history is not possible: the mission has taken a different course."""


class HistoryClock:
    """A clock set to the time of the current event, so that time limits are what they were."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Scratch:
    """Where the mission of `past` is re-enacted: `instance`, whose database is empty at first, and `root`.

    `contents` is the database with the pre-images. `ids` gives each past job its id here, which is its position in the
    order of storing. `replied`: the past jobs whose reply is stored here already.
    """

    def __init__(self, instance: Instance, past: Archive, root: Root, contents: Database) -> None:
        self.instance = instance
        self.past = past
        self.root = root
        self.mission_id = 1
        self.runner_id = 0
        self.replied: set[int] = set()
        self.ids = {job.id: place for place, job in enumerate(past.jobs, start=1)}
        self._contents = contents
        self._chance = random.Random(0)  # noqa: S311 -- no secret
        self._executor = Executor(instance, self._settle_now)
        self._jobs = {job.id: job for job in past.jobs}
        self._hashes: dict[str, str | None] = {}

    @cached_property
    def applied(self) -> list[ChangeRow]:
        """The file changes of the mission's jobs, without undos, in the order of their intents.

        A mission that worked in a stage is re-enacted in the scratch root: its merge changes nothing there. What
        commands changed is restored where a later change needs it: no command runs again.
        """
        made = (change for change in self.past.changes if change.state == APPLIED and change.undoes is None)
        return [change for change in made if change.mode not in (MERGE_MODE, APPLY_MODE)]

    def past_job(self, event: PastEvent) -> PastJob:
        """The past job of an event."""
        past = None if event.job_id is None else self._jobs.get(event.job_id)
        if past is None:
            raise Diverged(f"job {event.job_id} of event {event.seq} is not in the history")
        return past

    def job(self, tx: Tx, past: PastJob) -> JobRow:
        """The job here that corresponds to `past`."""
        found = queue.find_jobs(tx, [self.ids[past.id]])
        if not found:
            raise Diverged(f"job {past.id} ({past.kind}) was requested; now it is not")
        if found[0].kind != past.kind:
            raise Diverged(f"job {past.id} was a {past.kind}; now it is a {found[0].kind}")
        return found[0]

    def read_job(self, past: PastJob) -> JobRow:
        """Like `job`, in a transaction of its own."""
        return self.instance.database.read(lambda tx: self.job(tx, past))

    def running_job(self, past: PastJob) -> JobRow:
        """Like `read_job`. Raises `Diverged` unless the job is running."""
        job = self.read_job(past)
        if job.state is not State.RUNNING:
            raise Diverged(f"job {past.id} ({past.kind}) was running; now it is {job.state}")
        return job

    def write(self, act: Callable[Concatenate[Ledger, P], object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call `act(ledger, …)` in a transaction."""
        self.instance.database.write(lambda tx: act(ledger_of(tx), *args, **kwargs))

    def settle(self, job: JobRow, outcome: Succeeded | Failed | Hold) -> None:
        self.write(settle, FinishedJob(job.copy(), outcome), self._chance)

    def settle_finished(self, finished: Finished) -> None:
        self.write(settle_finished, [finished], self._chance)

    def execute(self, past: PastJob, job: JobRow) -> Finished | None:
        """Execute the job's worker; None if that settled the job."""
        worker = self.instance.admission.workers.get(past.kind)
        if worker is None:
            raise Diverged(f"job {past.id} needs a worker for the kind {past.kind!r}; none is installed")
        return next(self._executor.execute([job], worker), None)

    def apply_changes(self, past: PastJob, job: JobRow, changes: Sequence[ChangeRow]) -> None:
        """Execute the job that changes the files, after the changes that others made to them."""
        for change in changes:
            if self._hashes.get(change.path) != change.sha256_before:
                self.restore_file(change.path, change.sha256_before)
        finished = self.execute(past, job)
        self._hashes |= {change.path: change.sha256_after for change in changes}
        if finished is not None:
            self.settle_finished(finished)

    def restore_file(self, path: str, sha: str | None) -> None:
        """Give the file the content with this hash; None removes it."""
        data = None if sha is None else self._contents.read(lambda tx: content(tx, sha))
        if data is not None or self._hashes.get(path) is not None:
            with lock([(self.root, path)]) as locked:
                only(locked).replace(data, temporary_name())
        self._hashes[path] = sha

    def _settle_now(self, tx: Tx, finished: FinishedJob) -> None:
        settle(ledger_of(tx), finished, self._chance)
