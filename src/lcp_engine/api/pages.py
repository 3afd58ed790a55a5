"""Read missions, jobs and turns one page at a time, for user interfaces that list them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.engine.instance import Instance
from lcp_engine.store.conditions import STATUSES
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.queries import pages
from lcp_engine.store.queries.mission_spec import spec_and_root
from lcp_engine.store.queries.pages import HeldHead, JobCounts, JobFilter, MissionCounts, Page, Roots, Setting
from lcp_engine.store.queries.records import ActiveRunner
from lcp_engine.store.queries.runners import find_runners
from lcp_engine.store.queries.stats import Overview, overview_in

__all__ = [
    "STATUSES",
    "HeldHead",
    "JobCounts",
    "JobFilter",
    "JsonObject",
    "MissionCounts",
    "Page",
    "PageQueries",
    "Roots",
    "Setting",
]


class PageQueries:
    """Queries that return a limited number of rows, without large params and results.

    A `Page` has at most `limit` rows and the id after which the next page begins.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def missions(self, *, before: int | None, status: str, text: str = "", limit: int) -> Page:
        """Missions with `status` (any if empty) and an id below `before`, the newest first.

        `text` occurs in their name, goal, root or summary, in either case.
        """
        return self._instance.read(pages.page_missions, before=before, status=status, text=text, limit=limit)

    def oldest_missions(self, *, status: str, text: str = "", limit: int) -> Page:
        """The oldest missions, the newest of them first, filtered as in `missions`."""
        return self._instance.read(pages.oldest_missions, status=status, text=text, limit=limit)

    def mission_counts(self, text: str = "") -> MissionCounts:
        """Number of missions with each status, of those with `text`, among the newest."""
        return self._instance.read(pages.count_missions, text)

    def jobs(self, wanted: JobFilter, *, behind: int | None, limit: int, newest_first: bool = False) -> Page:
        """Jobs that match, in the order of their ids, after the id `behind`."""
        return self._instance.read(
            pages.page_jobs, wanted, behind=behind, limit=limit, newest_first=newest_first
        )

    def job_counts(self, wanted: JobFilter) -> JobCounts:
        """Number of jobs that match in each state, whatever states are wanted."""
        return self._instance.read(pages.count_jobs, wanted)

    def held_heads(
        self, wanted: JobFilter, *, among: Collection[int] | None = None, limit: int
    ) -> list[HeldHead]:
        """Matching held jobs without params, in the order of their ids; with `among` only those ids."""
        return self._instance.read(pages.find_held_heads, wanted, among=among, limit=limit)

    def settings_of(self, jobs: Sequence[JsonObject]) -> dict[int, Setting]:
        """Mission of each job, and the planner's words when it asked for it, by the job's id."""
        return self._instance.read(pages.find_settings, jobs)

    def turn_heads(self, mission_id: int, first: int, last: int) -> list[JsonObject]:
        """The questions asked by the jobs `first` to `last`, without prompt and reply."""
        return self._instance.read(pages.find_turn_heads, mission_id, first, last)

    def turn(self, mission_id: int, number: int) -> JsonObject:
        """A question with prompt and reply. Raises `NOT_FOUND`."""
        return self._instance.read(pages.find_turn, mission_id, number)

    def state_changes(self, mission_id: int, jobs: Sequence[JsonObject]) -> list[JsonObject]:
        """The events that changed the state of jobs of the mission, in order."""
        return self._instance.read(pages.find_moves, mission_id, jobs)

    def named_events(self, mission_id: int, names: Sequence[str], *, after_seq: int) -> list[tuple[int, str]]:
        """The events of these names after `after_seq`, in order: number and name."""
        return self._instance.read(pages.find_named_events, mission_id, names, after_seq)

    def roots(self, *, limit: int) -> Roots:
        """The roots of the newest missions, that of the newest first."""
        return self._instance.read(pages.find_roots, limit)

    def overview(self) -> Overview:
        """Contents of the database, without the size of its WAL."""
        return self._instance.read(overview_in, None)

    def spec(self, mission_id: int) -> MissionSpec:
        """Spec that the mission was launched with. Raises `NOT_FOUND`, also if it was pruned."""
        text, _ = self._instance.read(spec_and_root, mission_id)
        return spec_of(text)

    def last_event(self, mission_id: int) -> int:
        """The number of the mission's last event; they are numbered from 1 without gaps."""
        return self._instance.read(pages.last_event, mission_id)

    def mark(self) -> tuple[int, int, int]:
        """A value that is another one after any event of any mission, and after missions were pruned."""
        return self._instance.read(pages.find_mark)

    def held_count(self) -> int:
        """The number of held jobs of all missions."""
        return self._instance.read(pages.count_held)

    def runners(self) -> list[ActiveRunner]:
        """The processes that execute jobs of this database now."""
        return [ActiveRunner.read(row) for row in self._instance.read(find_runners, self._instance.runtime)]

    def has_changes(self, mission_id: int) -> bool:
        """True if the mission has changed any file."""
        return self._instance.read(pages.has_changed, mission_id)
