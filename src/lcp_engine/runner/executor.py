"""Execute leased jobs: a turn asks the planner, work calls its worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pydantic import BaseModel

from lcp_engine.changes.journal import UNTRACKED, JobEffect, Journal, Tracker
from lcp_engine.changes.recovery import execute_undo
from lcp_engine.engine.instance import Site
from lcp_engine.engine.outcome import Succeeded, outcome_of
from lcp_engine.engine.settle import Finished, FinishedJob, FinishedTurn, finish, finish_raised, label
from lcp_engine.errors import OF_DATABASE, Failed, LcpError
from lcp_engine.runner.confined.pool import Assignment, Confinement, file_access
from lcp_engine.runner.mission_cache import OpenMission, OpenMissions
from lcp_engine.runner.turn import Turns
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.root import Root
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.roots import EVERY_ROOT, Roots
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import ExecutedBy, FileEffect, Hold, Worker

MOST_TOGETHER = 1024 * 1024
"""Characters of params; the contents of files in memory are bounded in changes/journal.py."""
MOST_AHEAD = 16
MOST_AHEAD_SIZE = 16 * 1024
"""Characters of params: they have to fit into the buffer of a socket."""


@dataclass(frozen=True)
class BatchLimit:
    """How many jobs may execute together, and how many characters their params may have; one job always may."""

    jobs: int
    characters: int


_ALONE = BatchLimit(1, 0)
_TOGETHER = BatchLimit(sys.maxsize, MOST_TOGETHER)
_AHEAD = BatchLimit(MOST_AHEAD, MOST_AHEAD_SIZE)


class Executor:
    """Executes jobs for the lanes of a runner. `settle` settles one in the transaction of its file effect."""

    def __init__(
        self, site: Site, settle: Callable[[Tx, FinishedJob], None], roots: Roots = EVERY_ROOT
    ) -> None:
        self._site = site
        self._database = site.database
        self._settle = settle
        self._missions = OpenMissions(site, roots)
        self._threads = confined_threads(site.isolation)
        self._confinement = Confinement(site.caps) if self._threads.active else None
        self._turns = Turns(site, self._missions, self._threads, self._confinement)

    def close(self) -> None:
        """Stop the confined processes."""
        if self._confinement is not None:
            self._confinement.close()

    def batch_limit(self, worker: Worker[BaseModel]) -> BatchLimit:
        """How many of the worker's jobs may execute together."""
        if not worker.reads_files:
            return _TOGETHER
        confined = self._confinement is not None and self._confinement.executes(worker.kind)
        return _AHEAD if confined and not worker.has_effects else _ALONE

    def execute(
        self,
        jobs: Sequence[JobRow],
        worker: Worker[BaseModel],
        tracker: Tracker = UNTRACKED,
    ) -> Iterator[Finished]:
        """Execute jobs of one mission and kind; yields each when it is finished, unless it is settled already.

        Several jobs only within the worker's `batch_limit`. Re-raises database errors: no job is to blame.
        """
        effects: list[JobEffect] = []
        for job, ahead in zip(jobs, self._ahead(jobs, worker, tracker), strict=True):
            if ahead is None and not tracker.start(job):
                continue
            match ahead or self._attempt(job, worker):
                case FileEffect() as effect:
                    effects.append(JobEffect(job, effect))
                case FinishedJob() | FinishedTurn() as finished:
                    yield finished
            if effects and worker.reads_files:  # the next job may read this file
                yield from self._apply(effects, worker, tracker)
                effects = []
        if effects:
            yield from self._apply(effects, worker, tracker)

    def _ahead(
        self, jobs: Sequence[JobRow], worker: Worker[BaseModel], tracker: Tracker
    ) -> Sequence[FinishedJob | None]:
        """The outcomes of jobs that a confined process executes together; None for the others."""
        if len(jobs) > 1 and worker.reads_files and self._confinement is not None:
            with suppress(LcpError):  # each job meets the error alone
                mission = self._missions.of(jobs[0].mission_id)
                if mission.root is not None:
                    given = [self._assignment(job, worker, mission, mission.root) for job in jobs]
                    found = self._confinement.work_ahead(
                        mission.root, given, lambda nth: tracker.start(jobs[nth])
                    )
                    return [
                        None if one is None else finish(job, worker, one)
                        for job, one in zip(jobs, found, strict=True)
                    ]
        return [None] * len(jobs)

    def _attempt(self, job: JobRow, worker: Worker[BaseModel]) -> Finished | FileEffect | None:
        try:
            if worker.executed_by is ExecutedBy.PLANNER:
                return self._turns.take(job)
            outcome = (
                execute_undo(self._database, job, self._threads)
                if worker.executed_by is ExecutedBy.ENGINE
                else self._work(job, worker)
            )
        except BaseException as error:  # noqa: BLE001 -- a plug-in may raise anything, and must not end the runner
            return finish_raised(job, worker, error)
        return outcome if isinstance(outcome, FileEffect) else finish(job, worker, outcome)

    def _work(self, job: JobRow, worker: Worker[BaseModel]) -> Succeeded | FileEffect | Hold | Failed:
        mission, confinement = self._missions.of(job.mission_id), self._confinement
        is_confined = confinement is not None and worker.reads_files and confinement.executes(worker.kind)
        if confinement is not None and mission.root is not None and is_confined:
            return confinement.work(mission.root, self._assignment(job, worker, mission, mission.root))
        params = worker.read(from_json(job.params), label(job))
        context = self._missions.context(mission, job, worker)
        return outcome_of(worker, label(job), lambda: worker.execute(params, context))

    def _assignment(
        self, job: JobRow, worker: Worker[BaseModel], mission: OpenMission, root: Root
    ) -> Assignment:
        setup = self._missions.setup(mission, root.path)
        return Assignment(worker, label(job), job.params, mission.key, setup, bool(job.approved))

    def _apply(
        self, effects: Sequence[JobEffect], worker: Worker[BaseModel], tracker: Tracker
    ) -> list[FinishedJob]:
        def settle_one(tx: Tx, leased: JobRow, outcome: Succeeded | Failed | Hold) -> None:
            self._settle(tx, FinishedJob(leased, outcome, worker.backoff))

        tracker.settle_finished()
        try:
            job = effects[0].job
            context = self._missions.context(self._missions.of(job.mission_id), job, worker)
            caps, files = context.caps, file_access(self._confinement, worker.timeout)
            Journal(
                self._database,
                settle_one,
                context.root,
                caps.write_bytes,
                caps.preimage_bytes,
                files,
                tracker,
            ).perform(effects)
        except BaseException as error:  # a plug-in's effect may raise anything
            if len(effects) == 1:
                return [finish_raised(effects[0].job, worker, error)]
            if isinstance(error, LcpError) and error.code in OF_DATABASE:
                raise
        else:
            return []
        # One of them is to blame: alone, each finds out what happened to its own file.
        return [finished for effect in effects for finished in self._apply([effect], worker, tracker)]
