"""Query what reports say about missions. The modules that read it are slow to load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lcp_engine.api.kernel_history import KernelHistory

if TYPE_CHECKING:
    from lcp_engine.features.reports.facts import Course, Facts


class ReportCalls(KernelHistory):
    """Calls about reports."""

    def facts(self, mission_id: int, *, most: int | None = None, most_counted: int | None = None) -> Facts:
        """What a report says about the mission, files compared with the disk. Raises `NOT_FOUND`.

        `most`: at most so many rows of each list. Default: 1,000. `most_counted`: jobs that have ended are counted by
        kind and listed among so many of the newest. Default: all.
        """
        from lcp_engine.features.reports.reports import read_facts

        return read_facts(self.database, self._isolation, mission_id, most, most_counted)

    def drafts(self, mission_id: int) -> dict[int, str]:
        """The end of each reply that a planner is writing, by the job of its turn; at most a second old."""
        from lcp_engine.features.reports.store.drafts import find_drafts

        return self._read(find_drafts, mission_id)

    def standing(
        self,
        mission_id: int,
        *,
        since: int | None = None,
        most: int | None = None,
        acting: Sequence[str] = (),
    ) -> tuple[Facts, Course]:
        """Like `facts`, with every held job, and the mission's progress since event `since`.

        Default of `since`: the newest question to the planner. `acting`: the kinds whose jobs are listed where they
        succeeded.
        """
        from lcp_engine.features.reports.reports import read_standing

        return read_standing(
            self.database, self._isolation, mission_id, since=since, most=most, acting=acting
        )
