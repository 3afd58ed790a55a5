"""Launch missions repeatedly, or once at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pydantic import JsonValue

from lcp_engine.api.arguments import checked_spec, existing_directory
from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.api.user import user_name
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.recurrence import read_recurrence
from lcp_engine.engine.points import noted_at_launch
from lcp_engine.features.schedules import schedules
from lcp_engine.features.schedules.schedules import NewSchedule, Overlap
from lcp_engine.features.schedules.store import list_schedules
from lcp_engine.store.queries.records import Mission, Schedule


class ScheduleCalls(KernelEngine):
    """Calls about schedules."""

    def add_schedule(
        self,
        name: str,
        spec: MissionSpec | Mapping[str, JsonValue],
        *,
        root: str | os.PathLike[str],
        every: str | None = None,
        cron: str | None = None,
        at: str | None = None,
        timezone: str = "UTC",
        overlap: Overlap = "skip",
        replace: bool = False,
        allow_admin: bool = False,
    ) -> Schedule:
        """Have runners launch a mission over the directory `root` repeatedly, or once `at` a time.

        By a `cron` expression of five fields in a `timezone`; `every` length of time (`"1h30m"`) or interval of the
        calendar (`"1month"`); once, or first, `at` a local time in `timezone` or one with an offset from UTC. With
        `overlap="skip"` a due time passes while a mission of the schedule runs or waits. `replace` changes the settings
        of an existing schedule. `allow_admin` is that of `launch`.

        Raises like `launch`, `INVALID_ARGUMENT` for an invalid name or time, and `WRONG_STATE` for a name in use.
        """
        now = self.instance.clock()
        planned = read_recurrence(every=every, cron=cron, at=at, timezone=timezone, now=now)
        new = NewSchedule(
            name,
            checked_spec(self.instance, spec, allow_admin=allow_admin),
            existing_directory(root),
            planned,
            overlap,
        )
        self.instance.write(schedules.add_schedule, new, replace=replace)
        return self.schedule(name)

    def schedule(self, name: str) -> Schedule:
        """The schedule. Raises `NOT_FOUND`."""
        found = {schedule.name: schedule for schedule in self.schedules()}
        if name not in found:
            raise schedules.unknown_schedule(name, sorted(found))
        return found[name]

    def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return [Schedule.read(found) for found in self.instance.read(list_schedules)]

    def remove_schedule(self, name: str) -> None:
        """Remove a schedule; missions that it launched continue. Raises `NOT_FOUND`."""
        self.instance.write(schedules.remove_schedule, name)

    def launch_scheduled(self, name: str, *, by: str | None = None) -> Mission:
        """Launch the mission of a schedule now, `by` the user of this process unless stated; its next due time stays.

        Raises `NOT_FOUND`, and like `launch`.
        """
        row = self.instance.write(schedules.lock_schedule, name)
        stored = spec_of(row.spec)
        checked_spec(self.instance, stored, allow_admin=stored.allow_admin)
        noted = noted_at_launch(self.instance.admission, stored, existing_directory(row.root))
        launch = schedules.launch_now
        return self.mission(self.instance.write(launch, self.workers, name, by or user_name(), noted))
