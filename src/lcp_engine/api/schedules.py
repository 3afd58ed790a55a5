"""Keep schedules for a person: add, list, remove, launch at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from lcp_engine.api.decisions import Deciding
from lcp_engine.api.records import Mission, Schedule
from lcp_engine.core.mission.parse import build_mission
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.mission.stored import spec_of
from lcp_engine.core.recurrence import read_recurrence
from lcp_engine.engine import schedules as scheduling
from lcp_engine.engine.schedules import Overlap, Wanted
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.registry import make_planner
from lcp_engine.store.schedules import list_schedules


class Scheduling(Deciding):
    """The part of `Engine` that launches missions again and again."""

    def add_schedule(
        self,
        name: str,
        spec: MissionSpec | Mapping[str, JsonValue],
        *,
        root: str | os.PathLike[str],
        every: str | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        overlap: Overlap = "skip",
        replace: bool = False,
    ) -> Schedule:
        """Have runners launch a mission over the directory `root` again and again.

        It is due after each length of time (`every="1h30m"`), or by a cron expression of five fields in a timezone.
        With `overlap="skip"` a due time passes while a mission of the schedule runs or waits. `replace` gives a
        schedule that is there other settings. Raises like `launch`, and `INVALID_ARGUMENT` for a name that is taken and
        for what does not say when.
        """
        recurrence = read_recurrence(every=every, cron=cron, timezone=timezone)
        wanted = Wanted(name, self._checked(spec), existing_directory(root), recurrence, overlap)
        now = self.site.clock()
        self.site.database.write(lambda tx: scheduling.add(tx, wanted, now, replace=replace))
        return self.schedule(name)

    def schedule(self, name: str) -> Schedule:
        """The schedule. Raises `NOT_FOUND`."""
        found = {one.name: one for one in self.schedules()}
        if name not in found:
            raise scheduling.is_not_there(name, sorted(found))
        return found[name]

    def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return [Schedule(found) for found in self._read(list_schedules)]

    def remove_schedule(self, name: str) -> None:
        """Launch no more of these missions; those that are there go on. Raises `NOT_FOUND`."""
        self.site.database.write(lambda tx: scheduling.remove(tx, name))

    def launch_scheduled(self, name: str) -> Mission:
        """Launch the mission of a schedule now; when it is due next stays. Raises `NOT_FOUND`, and like `launch`."""
        row = self.site.database.write(lambda tx: scheduling.find(tx, name))
        self._checked(spec_of(row.spec))
        existing_directory(row.root)
        mission_id = self._books(lambda ledger: scheduling.launch_now(ledger, name))
        return self.mission(mission_id)

    def _checked(self, spec: MissionSpec | Mapping[str, JsonValue]) -> MissionSpec:
        """The mission, whose planner is there: what is wrong is known now, not at the first turn."""
        known = spec if isinstance(spec, MissionSpec) else build_mission(dict(spec), source="mission")
        make_planner(known.planner, self.site.surroundings)
        return known


def existing_directory(root: str | os.PathLike[str]) -> Path:
    """`root`, absolute. Raises `PATH_NOT_FOUND`, `NOT_A_FILE`."""
    path = Path(root)
    try:
        is_there, is_directory = path.exists(), path.is_dir()
    except OSError as error:  # what is above it cannot be searched
        message = f"root {path} has to be a directory; it cannot be looked at: {error.strerror}"
        raise LcpError(ErrorCode.PATH_NOT_FOUND, message) from error
    if not is_there:
        raise LcpError(ErrorCode.PATH_NOT_FOUND, f"root {path} has to be a directory; it is not there")
    if not is_directory:
        raise LcpError(ErrorCode.NOT_A_FILE, f"root {path} has to be a directory; it is a file")
    return path.resolve()
