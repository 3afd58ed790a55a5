"""Look at missions, jobs, history, files; note what a person was shown of held jobs."""

from __future__ import annotations

from collections.abc import Sequence

from lcp_engine.api.base import Sited, user_name
from lcp_engine.api.records import Job, Mission
from lcp_engine.changes.show import (
    FileNow,
    Look,
    look_over,
    note_first_sight,
    show_files,
    show_job,
    show_mission,
)
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.core.job_states import State
from lcp_engine.core.mission.stored import spec_of
from lcp_engine.core.protocol.actions import Action, Malformed
from lcp_engine.core.protocol.dialects import reader_of
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.jobs.explain_policy import explain_job
from lcp_engine.engine.reports.files_on_disk import compared
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.confined_thread import walls_of
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import spec_and_root
from lcp_engine.store.queries import history
from lcp_engine.store.queries.history import known_id
from lcp_engine.store.queries.hold_deadlines import find_expiries
from lcp_engine.store.queries.mission_facts import Course, Facts
from lcp_engine.store.queries.mission_report import MOST, find_facts
from lcp_engine.store.queries.progress import find_course

_STATES = [str(state) for state in State]


class Looking(Sited):
    """The part of `Engine` that looks."""

    def mission(self, mission_id: int) -> Mission:
        """The mission as it is now. Raises `NOT_FOUND`."""
        return Mission(self._read(lambda tx: history.find_mission(tx, mission_id)))

    def missions(self, *, limit: int | None = None, schedule: str | None = None) -> list[Mission]:
        """Missions, the newest first; with `schedule` those that a schedule of that name launched."""
        found = self._read(lambda tx: history.find_missions(tx, limit=limit, schedule=schedule))
        return [Mission(row) for row in found]

    def job(self, job_id: int) -> Job:
        """The job with its attempts. Raises `NOT_FOUND`."""
        return Job(self._read(lambda tx: history.find_job(tx, job_id)))

    def jobs(
        self,
        *,
        mission_id: int | None = None,
        states: Sequence[str] = (),
        kinds: Sequence[str] = (),
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Job]:
        """Jobs that fit every filter, in the order of their ids. Raises `INVALID_ARGUMENT` for an unknown state."""
        for state in states:
            if state not in _STATES:
                raise LcpError(
                    ErrorCode.INVALID_ARGUMENT, f"no state is named {state!r}; {nearest(state, _STATES)}"
                )

        def find(tx: Tx) -> list[JsonObject]:
            return history.find_jobs(
                tx, mission_id=mission_id, states=states, kinds=kinds, limit=limit, newest_first=newest_first
            )

        return [Job(row) for row in self._read(find)]

    def events(
        self,
        mission_id: int,
        *,
        after_seq: int = 0,
        job_id: int | None = None,
        event: str | None = None,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """The mission's history after event `after_seq`, in order; with `event` only the events of that name."""
        return self._read(
            lambda tx: history.find_events(
                tx, mission_id, after_seq=after_seq, job_id=job_id, event=event, limit=limit
            )
        )

    def event_counts(self) -> dict[int, int]:
        """The number of the last event of every mission, by the mission's id."""
        return self._read(history.count_events)

    def turns(self, mission_id: int, *, job_id: int | None = None) -> list[JsonObject]:
        """Questions and replies, in order; with `job_id` those of one job."""
        return self._read(lambda tx: history.find_turns(tx, mission_id, job_id=job_id))

    def steps(self, mission_id: int) -> dict[int, int]:
        """The job that began the sub-plan of each later turn of one, by the turn's job."""
        return self._read(lambda tx: history.find_steps(tx, mission_id))

    def changes(self, mission_id: int) -> list[JsonObject]:
        """The mission's file effects in order, with what became of them."""
        return self._read(lambda tx: history.find_changes(tx, mission_id))

    def expiries(self) -> dict[int, str]:
        """When each held job that expires is rejected (ISO 8601), by the job's id."""
        return self._read(find_expiries)

    def diff(self, job_id: int, *, by: str | None = None) -> list[Diff]:
        """What a held job would change now, which counts as seen by that person; or what the job has changed.

        Empty for a job that changes no file. Raises `NOT_FOUND`.
        """
        return show_job(self.site, known_id("job", job_id), by or user_name())

    def mission_diff(self, mission_id: int) -> list[Diff]:
        """What the mission has changed: each file from its first content to its last. Raises `NOT_FOUND`."""
        return show_mission(self.site, known_id("mission", mission_id))

    def look_over(self, jobs: Sequence[JsonObject], *, by: str | None = None) -> dict[int, Look]:
        """What held jobs would change now, by their ids, which counts as seen by that person."""
        return look_over(self.site, jobs, by or user_name())

    def changed_files(self, mission_id: int, *, first: int, most: int) -> tuple[list[FileNow], int]:
        """Like `mission_diff`, with what is on the disk: `most` files behind the `first` ones, and how many there are.

        Raises `NOT_FOUND`.
        """
        return show_files(self.site, known_id("mission", mission_id), first=first, most=most)

    def saw(self, jobs: Sequence[Job], *, by: str | None = None) -> None:
        """Note that a person was shown a list of held jobs: what they see later takes its place, not the reverse."""
        note_first_sight(self.site, [job.json for job in jobs], by or user_name())

    def facts(self, mission_id: int, *, most: int = MOST) -> Facts:
        """What a report says of the mission, at most `most` rows of each list; files are compared with the disk.

        Raises `NOT_FOUND`.
        """
        return self._compared(self._read(lambda tx: find_facts(tx, mission_id, most=most)))

    def standing(
        self, mission_id: int, *, since: int | None = None, most: int = MOST
    ) -> tuple[Facts, Course]:
        """Like `facts`, with all that is held, and how far the mission has come since event `since`.

        Without `since`: since the newest question to the planner.
        """

        def find(tx: Tx) -> tuple[Facts, Course]:
            facts = find_facts(tx, mission_id, most=most, most_held=MOST)
            return facts, find_course(tx, mission_id, since)

        facts, course = self._read(find)
        return self._compared(facts), course

    def _compared(self, facts: Facts) -> Facts:
        return compared(facts, walls_of(self.site.isolation).look)

    def explain_policy(self, job_id: int) -> JsonObject:
        """Which rule decides about a job, and every one that was looked at. Raises `NOT_FOUND`."""
        job = self.job(job_id)
        spec, root = self._read(lambda tx: spec_and_root(tx, job.mission_id))
        return explain_job(self.site.bench, job.json, spec, root)

    def read_reply(self, mission_id: int, text: str) -> Action | Malformed:
        """The action that `text` states to this mission, in its dialect and with its kinds; nothing is stored.

        Raises `NOT_FOUND`.
        """
        known = known_id("mission", mission_id)
        spec = spec_of(self._read(lambda tx: spec_and_root(tx, known))[0])
        kinds = {kind: worker.params for kind, worker in self.workers.items()}
        return reader_of(spec.planner.dialect)(text, kinds)
