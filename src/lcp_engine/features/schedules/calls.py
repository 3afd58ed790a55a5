"""Launch missions repeatedly, or once at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from pydantic import JsonValue

from lcp_engine.api.arguments import checked_spec, existing_directory
from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.api.user import user_name
from lcp_engine.core.json_values import JsonObject, int_in, object_in
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.times.recurrence import read_recurrence
from lcp_engine.engine.points import noted_at_launch
from lcp_engine.features.schedules import schedules
from lcp_engine.features.schedules.schedules import NewSchedule, Overlap
from lcp_engine.features.schedules.store import list_schedules
from lcp_engine.store.queries.records import Mission


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A mission that runners launch repeatedly, as it was when it was read."""

    name: str
    rule: str
    """When it is due, in a few words."""
    next_due_at: datetime | None
    """None after the only due time of a schedule."""
    missed: int
    """How many due times passed without a runner."""
    skipped: int
    """How many due times passed while one of its missions ran or waited."""
    mission_id: int | None
    """Its newest mission."""
    error: str | None
    """Why it could not be launched when it was last due."""
    json: JsonObject = field(repr=False)
    """The whole object, as `lcp schedule list --json` prints it."""

    @classmethod
    def read(cls, json: JsonObject) -> Self:
        """Read an object of `list_schedules`."""
        due, error, mission = json["next_due_at"], json["error"], object_in(json["mission"]).get("id")
        return cls(
            name=str(json["name"]),
            rule=str(json["rule"]),
            next_due_at=None if due is None else datetime.fromisoformat(str(due)),
            missed=int_in(json["missed"]),
            skipped=int_in(json["skipped"]),
            mission_id=None if mission is None else int_in(mission),
            error=None if error is None else str(error),
            json=json,
        )


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
