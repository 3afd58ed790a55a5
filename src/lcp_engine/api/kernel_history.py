"""Query a database: missions, jobs, events, turns, changes. Needs neither SQLAlchemy nor pydantic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.kinds import kind_named
from lcp_engine.core.summaries import Object, nearest
from lcp_engine.engine.people.subjects import Subjects
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.feature import available, load
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries import history
from lcp_engine.store.queries.held_jobs import (
    ask_several,
    find_awaited_replies,
    find_expiries,
    have_ended,
    met,
)
from lcp_engine.store.queries.mission_spec import kind_settings, stage_place
from lcp_engine.store.queries.records import ActiveRunner, Job, Mission
from lcp_engine.store.queries.runners import find_runners

if TYPE_CHECKING:
    from lcp_engine.core.policy import Rule

P = ParamSpec("P")
T = TypeVar("T")
_STATES = [str(state) for state in State]


class NotInstalled(LcpError, AttributeError):
    """A call that no installed feature adds is no attribute."""


class KernelHistory:
    """The missions of a database and what they did, without the calls of features. A context manager."""

    def __init__(self, database: Database, isolation: Isolation, runtime: Path) -> None:
        self.database = database
        self._isolation = isolation
        self._runtime = runtime

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker would take any name for one that is there

        def __getattr__(self, name: str) -> object:
            """Refuse what no installed feature adds."""
            message = f"{type(self).__name__} has no {name!r}: no installed feature adds it"
            raise NotInstalled(ErrorCode.NOT_INSTALLED, message)

    def close(self) -> None:
        """Finish the transactions that have begun, then close every connection."""
        self.database.close()

    def mission(self, mission_id: int) -> Mission:
        """The mission as it is now. Raises `NOT_FOUND`."""
        return Mission.read(self._read(history.find_mission, mission_id))

    def missions(
        self, *, limit: int | None = None, schedule: str | None = None, session: str | None = None,
        before: int | None = None,
    ) -> list[Mission]:  # fmt: skip
        """Missions, newest first; with `schedule` those that the schedule of that name launched, with `session` those
        that were launched for requests of that session, with `before` those with a lower id.
        """
        found = self._read(history.find_missions, limit, schedule, session, before)
        return [Mission.read(row) for row in found]

    def job(self, job_id: int) -> Job:
        """The job with its attempts. Raises `NOT_FOUND`."""
        return Job.read(self._read(history.find_job, job_id))

    def jobs(
        self,
        *,
        mission_id: int | None = None,
        states: Sequence[str] = (),
        kinds: Sequence[str] = (),
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Job]:
        """Jobs that match every filter, in the order of their ids. Raises `INVALID_ARGUMENT` for an unknown state."""
        check_states(states)
        if any(kind.startswith("tool-") for kind in kinds):
            known = self._known_kinds()
            kinds = [kind_named(kind, known) for kind in kinds]
        found = self._read(
            history.find_jobs, mission_id=mission_id, states=states, kinds=kinds, limit=limit,
            newest_first=newest_first,
        )  # fmt: skip
        return [Job.read(row) for row in found]

    def _known_kinds(self) -> Collection[str]:
        """The kinds whose tools' ids stand for them."""
        from lcp_engine.workers.registry import find_workers  # slow to load

        return find_workers()

    def events(
        self,
        mission_id: int,
        *,
        after_seq: int = 0,
        job_id: int | None = None,
        event: str | None = None,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """Events of the mission after number `after_seq`, in order; with `event` only those of that name."""
        return self._read(
            history.find_events, mission_id, after_seq=after_seq, job_id=job_id, event=event, limit=limit
        )

    def event_counts(self) -> dict[int, int]:
        """The number of the last event of every mission, by the mission's id."""
        return self._read(history.count_events)

    def turns(self, mission_id: int, *, job_id: int | None = None) -> list[JsonObject]:
        """Questions and replies in order; with `job_id` those of one turn."""
        return self._read(history.find_turns, mission_id, job_id=job_id)

    def warnings(self, mission_id: int) -> list[JsonObject]:
        """Ignored parts of replies, such as unknown keys: `number`, `turn`, `job_id` and `warnings` of each."""
        return self._read(history.find_warnings, mission_id)

    def ask_several(self, mission_ids: Collection[int], of_user: Iterable[Rule]) -> bool:
        """True if a rule of the user, or of one of these missions, asks for others than any one person."""
        return any(not rule.consent.is_usual for rule in of_user) or self._read(ask_several, mission_ids)

    def have_ended(self, mission_ids: Collection[int]) -> frozenset[int]:
        """Those of these missions that have ended."""
        return self._read(have_ended, mission_ids)

    def kind_settings(self, mission_id: int) -> dict[str, JsonObject]:
        """Settings of the mission for kinds of jobs, by the kind; only what it states. Raises `NOT_FOUND`."""
        return self._read(kind_settings, mission_id)

    def stage(self, mission_id: int) -> JsonObject | None:
        """Stage of a mission that works in one: `path` and `machine`, null while it is not made; else None.

        Raises `NOT_FOUND`.
        """
        return self._read(stage_place, mission_id)

    def launch_notes(self, mission_id: int) -> tuple[JsonObject, list[str]]:
        """Notes of features on the mission at its launch, by their keys, and lines about them for people."""
        event = next(iter(self.events(mission_id, event="launched", limit=1)), {})
        data, stated = event.get("data"), available().launch_notes
        noted = {key: one for key, one in data.items() if key in stated} if isinstance(data, dict) else {}
        return noted, [line for key, one in noted.items() for line in load(stated[key][1], FunctionType)(one)]

    def steps(self, mission_id: int) -> dict[int, int]:
        """The job that stands for the plan of each later turn of a sub-plan, and of each step of a planner's plan."""
        return self._read(history.find_steps, mission_id)

    def subjects(self) -> Callable[[Object], str]:
        """Tell what jobs are about, on one line each; the root of each mission is read once."""
        return Subjects(self.database).of

    def changes(self, mission_id: int) -> list[JsonObject]:
        """File effects of the mission in order, with their state."""
        return self._read(history.find_changes, mission_id)

    def expiries(self) -> dict[int, str]:
        """When each held job with a deadline is rejected (ISO 8601), by the job's id."""
        return self._read(find_expiries)

    def awaited_replies(self) -> frozenset[int]:
        """The ids of held turns that wait for a person to bring the planner's reply (`answer`)."""
        return self._read(find_awaited_replies)

    def runners(self) -> list[ActiveRunner]:
        """The processes that execute jobs of this database now, on any machine, oldest first.

        One of another machine that dies counts for up to 90 seconds more.
        """
        return [ActiveRunner.read(row) for row in self._read(find_runners, self._runtime)]

    def unseen(self, jobs: Sequence[Job], by: str) -> list[Job]:
        """Those of these held jobs that `by` has not seen, and that were not recorded when they were held."""
        known = self._read(met, [job.id for job in jobs], by)
        return [job for job in jobs if job.id not in known]

    def _read(self, query: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `query(tx, …)`, all of it read from one state of the database."""
        return self.database.read(lambda tx: query(tx, *args, **kwargs))


def check_states(states: Sequence[str]) -> None:
    """Raise `INVALID_ARGUMENT` for a name that is not a state of a job."""
    for state in states:
        if state not in _STATES:
            message = f"no state is named {state!r}; {nearest(state, _STATES)}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
