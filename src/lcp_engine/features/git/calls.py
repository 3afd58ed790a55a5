"""Revert the commit of a mission once its changes are undone."""

from __future__ import annotations

import logging

from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.core.job_states import OPEN
from lcp_engine.core.json_values import object_in
from lcp_engine.engine.progress import refresh
from lcp_engine.features.git.commit import ATTEMPTS
from lcp_engine.features.git.rules import KIND
from lcp_engine.runner.runner import Runner
from lcp_engine.runner.undo import Undo
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.queries.history import find_jobs


class GitCalls(KernelEngine):
    """Undo, with the revert of what a mission committed."""

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
        if mission_id is not None and not dry_run and self.instance.write(_request_revert, mission_id):
            Runner(self.instance, mission_id=mission_id, kinds=(KIND,), until_idle=True).run()
            for job in self.jobs(mission_id=mission_id, kinds=[KIND], states=["failed"]):
                why = str((job.error or {}).get("user_message"))
                logging.getLogger("lcp_engine").warning("job %s, the revert: %s", job.id, why)
        return done


def _request_revert(ledger: Ledger, mission_id: int) -> bool:
    """Queue the revert of a mission's commit; False if there is none, or its revert was requested before."""
    mission = ledger.mission(mission_id)
    jobs = find_jobs(ledger.tx, mission_id=mission_id, kinds=[KIND])
    made = [str(object_in(job["result"]).get("commit") or "") for job in jobs if job["state"] == "succeeded"]
    reverted = {object_in(job["params"]).get("reverts"): str(job["state"]) for job in jobs}
    commit = next((one for one in made if one), None)
    if commit is None or commit in reverted:
        return commit is not None and reverted[commit] in OPEN
    ledger.create(
        mission,
        NewJobRow(
            plan_id=mission.root_plan, name="the revert", kind=KIND, params=to_json({"reverts": commit}),
            max_attempts=ATTEMPTS,
        ),
    )  # fmt: skip
    refresh(ledger, mission)
    return True
