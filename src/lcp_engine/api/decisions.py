"""Take decisions for a person: approve, reject, answer, say, cancel, resume, retry, undo."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from lcp_engine.api.base import user_name
from lcp_engine.api.queries import Looking
from lcp_engine.api.records import Job, Mission
from lcp_engine.changes.show import sight_now
from lcp_engine.engine.missions import steer
from lcp_engine.engine.people import answer as answering
from lcp_engine.engine.people import approve as deciding
from lcp_engine.engine.people import message
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.undo import Undo, undo
from lcp_engine.store.approvals import Sight
from lcp_engine.store.queries.history import known_id


class Deciding(Looking):
    """The part of `Engine` that decides."""

    def approve(
        self,
        job_id: int,
        *,
        params: Mapping[str, JsonValue] | None = None,
        by: str | None = None,
        shown: Sight | None = None,
    ) -> bool:
        """Let a held job run, with other `params` if given; False if that was decided before.

        It binds to what this person was `shown` (`look_over`), else to what they last saw (`diff`), or else to what was
        there when the job was held. Raises `NOT_FOUND`, `CONFLICT` where the file has changed since or somebody decided
        otherwise, `WRONG_STATE`, `NO_WORKER`, `INVALID_PARAMS`, `PATH_DENIED`, `NOT_ALLOWED`.
        """
        revised = None if params is None else dict(params)
        known, bench, who = known_id("job", job_id), self.site.bench, by or user_name()
        now = sight_now(self.site, known, revised)
        return self._books(
            lambda ledger: deciding.approve(
                ledger, bench, known, by=who, now=now, params=revised, shown=shown
            )
        )

    def reject(self, job_id: int, reason: str, *, by: str | None = None) -> bool:
        """Refuse a held job; the planner reads the reason. False if that was decided before.

        Raises `CONFLICT`, `WRONG_STATE`.
        """
        return self._books(
            lambda ledger: deciding.reject(ledger, known_id("job", job_id), reason, by=by or user_name())
        )

    def answer(self, job_id: int, text: str, *, by: str | None = None) -> bool:
        """Answer a held question (R13); False if it was answered so before.

        With options, the number of one or the beginning of exactly one stands for it. Raises `NOT_FOUND`,
        `INVALID_ARGUMENT`, `WRONG_STATE`.
        """
        return self._books(
            lambda ledger: answering.answer(ledger, known_id("job", job_id), text, by=by or user_name())
        )

    def say(self, mission_id: int, text: str, *, job_id: int | None = None, by: str | None = None) -> None:
        """Tell the planner something, perhaps about a job, in a new turn; nothing is approved or rejected (R14).

        Raises `NOT_FOUND`, `INVALID_ARGUMENT`, and `WRONG_STATE` for a mission that has ended.
        """
        mission = known_id("mission", mission_id)
        about = None if job_id is None else known_id("job", job_id)
        self._books(lambda ledger: message.say(ledger, mission, text, by=by or user_name(), job_id=about))

    def cancel(self, mission_id: int, *, by: str | None = None) -> bool:
        """Stop a mission; False if it is cancelled already. Raises `NOT_FOUND`, `WRONG_STATE`."""
        return self._books(
            lambda ledger: steer.cancel(ledger, known_id("mission", mission_id), by=by or user_name())
        )

    def resume(
        self, mission_id: int, *, limits: Mapping[str, JsonValue] | None = None, by: str | None = None
    ) -> Mission:
        """Go on with a mission that ended, with other limits if given. Raises `WRONG_STATE`, `INVALID_MISSION`."""
        self._books(
            lambda ledger: steer.resume(
                ledger, known_id("mission", mission_id), limits or {}, by=by or user_name()
            )
        )
        return self.mission(mission_id)

    def retry(self, job_id: int, *, by: str | None = None) -> Job:
        """Queue a failed, skipped or cancelled job again; one that nobody had approved is held again.

        Raises `NOT_FOUND`, `WRONG_STATE`, `NO_WORKER`, `INVALID_PARAMS`.
        """
        known = known_id("job", job_id)
        self._books(lambda ledger: steer.retry(ledger, known, by=by or user_name(), workers=self.workers))
        return self.job(job_id)

    def undo(
        self,
        mission_id: int | None = None,
        *,
        job_id: int | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Undo:
        """Take back what a mission, or one job, did to files. Raises as `lcp_engine.runner.undo.undo` says."""
        if (mission_id is None) == (job_id is None):
            raise LcpError(
                ErrorCode.INVALID_ARGUMENT, "either a mission or a job is undone; name one of both"
            )
        return undo(self.site, mission_id=mission_id, job_id=job_id, dry_run=dry_run, by=by or user_name())
