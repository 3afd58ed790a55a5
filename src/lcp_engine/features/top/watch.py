"""Read what the screen shows, in a thread: when a commit makes a job ready, and about once a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from uuid import uuid4

from lcp_engine import Mission
from lcp_engine.api.engine import Engine
from lcp_engine.api.inbox import HeldJob
from lcp_engine.api.pages import JobFilter, PageQueries
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject
from lcp_engine.errors import ErrorCode, Failed, LcpError

IDLE_SECONDS = 1.0
BUSY_SECONDS = 0.4
"""After news; a commit that settles a job or holds one wakes nobody."""
REST_SECONDS = 0.1
"""Between two looks, whatever happens: thousands of jobs a second must not cost as many looks."""
MOST_MISSIONS = 200
MOST_JOBS = 300
MOST_HELD = 200
_LOOKS_WITHOUT_RUNNERS = 5
"""Runners come and go without an event: they are counted with each news, and each so many looks."""


@dataclass(frozen=True)
class Snapshot:
    """Contents of the database at one moment, as far as the screen shows it."""

    missions: Sequence[JsonObject] = ()
    """The newest first."""
    held: Sequence[HeldJob] = ()
    """The oldest first."""
    held_count: int = 0
    runners: int = 0
    mission: Mission | None = None
    """The selected mission."""
    jobs: Sequence[JsonObject] = ()
    """Its newest jobs, in the order of their ids."""
    has_older_jobs: bool = False
    drafts: Mapping[int, str] = field(default_factory=dict)
    """What planners are writing in it, by the job of the turn."""


Report: TypeAlias = Snapshot | Failed | Exception | None
"""What a look found; None if nothing has changed, an exception if the thread has ended with it."""


class Watch:
    """Calls `report` in its thread after each look. The other methods may be called from any thread."""

    def __init__(self, engine: Engine, report: Callable[[Report], object]) -> None:
        self._engine = engine
        self._queries = PageQueries(engine.instance)
        self._report = report
        self._stopped = threading.Event()
        self._is_forced = True
        self._mission_id: int | None = None
        self._mark: tuple[int, int, int] | None = None
        self._last = Snapshot()
        self._since_runners = 0
        self._listener = engine.instance.notifier.listen(uuid4().hex, self._wake)
        self._thread = threading.Thread(target=self._run, name="lcp-top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after the look that it takes."""
        self._stopped.set()
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._listener.close()

    def select(self, mission_id: int | None) -> None:
        """Read the jobs of that mission from now on."""
        if mission_id != self._mission_id:
            self._mission_id = mission_id
            self.look()

    def look(self) -> None:
        """Look now, whatever the events say."""
        self._is_forced = True
        self._wake()

    def _wake(self) -> None:
        self._listener.wake()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as defect:  # noqa: BLE001  # the top of the thread: the program ends, and says why
            self._report(defect)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            found = self._try()
            self._report(found)
            self._stopped.wait(REST_SECONDS)
            if not self._stopped.is_set():
                self._listener.listen(IDLE_SECONDS if found is None else BUSY_SECONDS)

    def _try(self) -> Snapshot | Failed | None:
        """Look; a database that is away is a value, and the next look tries again."""
        try:
            return self._look()
        except LcpError as refused:
            self._is_forced = True
            return refused.failed

    def _look(self) -> Snapshot | None:
        is_forced, self._is_forced = self._is_forced, False
        mark, self._since_runners = self._queries.mark(), self._since_runners + 1
        has_news = is_forced or mark != self._mark
        counts_runners = has_news or self._since_runners >= _LOOKS_WITHOUT_RUNNERS
        runners = len(self._queries.runners()) if counts_runners else self._last.runners
        if counts_runners:
            self._since_runners = 0
        drafts = {} if self._mission_id is None else self._engine.drafts(self._mission_id)
        if not has_news and (runners, drafts) == (self._last.runners, self._last.drafts):
            return None
        found = replace(self._read(runners) if has_news else self._last, runners=runners, drafts=drafts)
        self._mark, self._last = mark, found
        return found

    def _read(self, runners: int) -> Snapshot:
        missions = self._queries.missions(before=None, status="", limit=MOST_MISSIONS).rows
        mission, jobs, has_older = self._of_mission()
        return Snapshot(
            missions,
            self._held(),
            self._queries.held_count(),
            runners,
            mission,
            jobs,
            has_older,
        )

    def _held(self) -> list[HeldJob]:
        page = self._queries.jobs(JobFilter(states=[State.HELD]), behind=None, limit=MOST_HELD)
        return self._engine.inbox.of(page.rows) if page.rows else []

    def _of_mission(self) -> tuple[Mission | None, Sequence[JsonObject], bool]:
        mission_id = self._mission_id
        if mission_id is None:
            return None, (), False
        try:
            mission = self._engine.mission(mission_id)
        except LcpError as refused:
            if refused.code is not ErrorCode.NOT_FOUND:
                raise
            return None, (), False  # it was pruned
        page = self._queries.jobs(JobFilter(mission_id), behind=None, limit=MOST_JOBS, newest_first=True)
        return mission, page.rows[::-1], page.behind is not None
