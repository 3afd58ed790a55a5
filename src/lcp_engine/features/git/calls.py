"""Say of an undo whose revert failed why."""

from __future__ import annotations

import logging

from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.features.git.rules import KIND
from lcp_engine.runner.undo import Undo


class GitCalls(KernelEngine):
    """Undo, with the revert of what a mission committed: its job is queued with the success of the undo."""

    def undo(
        self,
        mission_id: int | None = None,
        *,
        job_id: int | None = None,
        dry_run: bool = False,
        shown: str | None = None,
        by: str | None = None,
    ) -> Undo:
        """Like that of the kernel. The commit of a mission that is undone as a whole is reverted by another one.

        The files are restored whatever becomes of that: where it fails, its job says why, and can be retried.
        """
        done = super().undo(mission_id, job_id=job_id, dry_run=dry_run, shown=shown, by=by)
        return self._told(done) if mission_id is not None and done.job_id is not None else done

    def finish_undo(self, job_id: int) -> Undo:
        """Like that of the kernel, with the revert of `undo`."""
        return self._told(super().finish_undo(job_id))

    def _told(self, done: Undo) -> Undo:
        for job in self.jobs(mission_id=done.mission_id, kinds=[KIND], states=["failed"]):
            if job.params.get("reverts"):
                why = str((job.error or {}).get("user_message"))
                logging.getLogger("lcp_engine").warning("job %s, the revert: %s", job.id, why)
        return done
