"""Schedules: add, remove, launch what is due. One transaction each."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import JsonValue, ValidationError

from lcp_engine.clock import SECOND, Clock, Micros, iso
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.summaries import nearest
from lcp_engine.core.times.recurrence import (
    Every,
    Onward,
    Planned,
    Recurrence,
    from_stored,
    go_on,
    stored_text,
)
from lcp_engine.engine import missions
from lcp_engine.engine.admission import Admission
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import Chore, noted_at_launch, steps
from lcp_engine.errors import OF_DATABASE, ErrorCode, LcpError
from lcp_engine.features.schedules import store as schedules
from lcp_engine.features.schedules.store import ScheduleRow, Tick
from lcp_engine.sandbox.root_identity import identity_at
from lcp_engine.store.db.database import Database
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.workers.base import Workers

Overlap: TypeAlias = Literal["skip", "allow"]
LOOK_SECONDS = 1.0
"""How often a runner looks for schedules that it does not know of."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class NewSchedule:
    """A schedule to store: a mission of `spec` over `root` is launched whenever its recurrence is due.

    `overlap`: with `skip` a due time passes while a mission of the schedule runs or waits.
    """

    name: str
    spec: MissionSpec
    root: Path
    planned: Planned
    overlap: Overlap = "skip"


def add_schedule(ledger: Ledger, new: NewSchedule, *, replace: bool = False) -> None:
    """Store a schedule.

    With `replace` the schedule of that name gets these settings, and keeps its missions and its counts. Raises
    `INVALID_ARGUMENT` for an invalid name, `WRONG_STATE` for one in use.
    """
    if not _NAME.fullmatch(new.name):
        expected = "1 to 64 letters, digits, '.', '_' and '-', starting with a letter or a digit"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"schedule name {new.name!r} is not valid; use {expected}")
    known = schedules.find_schedule(ledger.tx, new.name) is not None
    if known and not replace:
        message = f"schedule {new.name!r} already exists; --replace changes its settings"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice="Choose another name, or use --replace.")
    rule, due_at = new.planned
    row = ScheduleRow(
        name=new.name,
        every=rule.length if isinstance(rule, Every) else None,
        cron=None if isinstance(rule, Every) else stored_text(rule),
        timezone=None if isinstance(rule, Every) else rule.timezone,
        overlap=new.overlap,
        spec=new.spec.model_dump_json(by_alias=True),
        root=str(new.root),
        due_at=due_at,
    )
    schedules.put_schedule(ledger.tx, row, replace=known)


def remove_schedule(ledger: Ledger, name: str) -> None:
    """Remove a schedule; its missions continue. Raises `NOT_FOUND`."""
    lock_schedule(ledger, name)
    schedules.remove_schedule(ledger.tx, name)


def lock_schedule(ledger: Ledger, name: str) -> ScheduleRow:
    """The schedule, locked until the commit. Raises `NOT_FOUND`."""
    row = schedules.find_schedule(ledger.tx, name)
    if row is None:
        raise unknown_schedule(name, schedules.schedule_names(ledger.tx))
    return row


def unknown_schedule(name: str, known: Sequence[str]) -> LcpError:
    """The error for a name that no schedule has."""
    return LcpError(ErrorCode.NOT_FOUND, f"schedule {name!r} is not in the database; {nearest(name, known)}")


def launch_now(ledger: Ledger, workers: Workers, name: str, by: str, noted: Mapping[str, JsonValue]) -> int:
    """Launch the mission of a schedule now, without changing when it is due; the mission's id. Raises `NOT_FOUND`."""
    row = lock_schedule(ledger, name)
    mission_id = missions.launch(
        ledger,
        spec_of(row.spec),
        Path(row.root),
        about={"schedule": name, "by": by, **noted},
        identity=identity_at(row.root),
        begin=steps().prepare(spec_of(row.spec), workers, row.root),
    )
    schedules.note_launch(ledger.tx, name, mission_id)
    return mission_id


def tick(
    ledger: Ledger,
    workers: Workers,
    row: ScheduleRow,
    now: Micros,
    onward: Onward,
    *,
    noted: Mapping[str, JsonValue],
) -> None:
    """Launch a due mission, once even if several runners try, and set the next due time.

    The due time is skipped if missions may not overlap and one of the schedule still runs or waits.
    """
    tx = ledger.tx
    if not schedules.take_due(tx, row):
        return
    is_launched = row.overlap == "allow" or not schedules.open_missions(tx, row.name)
    if is_launched:
        due = iso(row.due_at)
        mission_id = missions.launch(
            ledger,
            spec_of(row.spec),
            Path(row.root),
            key=f"schedule:{row.name}:{due}",
            about={"schedule": row.name, "due_at": due, "missed": onward.missed, **noted},
            identity=identity_at(row.root),
            begin=steps().prepare(spec_of(row.spec), workers, row.root),
        )
        schedules.note_launch(tx, row.name, mission_id)
    outcome = "launched" if is_launched else "skipped"
    schedules.move_on(tx, row, Tick(outcome, now, onward.missed, onward.next_due))


def recurrence_of(row: ScheduleRow) -> Recurrence:
    """When a schedule is due."""
    return from_stored(row.every, row.cron, row.timezone)


class Scheduler:
    """Launches the missions of due schedules, each once, however many runners there are.

    A schedule that cannot be launched here is reported once, noted, and left to other runners.
    """

    def __init__(self, database: Database, clock: Clock, admission: Admission | None = None) -> None:
        self._database = database
        self._admission = admission or Admission({})
        self._clock = clock
        self._left: set[tuple[str, Micros]] = set()
        self._next_due: Micros | None = None

    def launch_due(self) -> None:
        """Launch what is due. Re-raises database errors."""
        now = self._clock()
        self._next_due = self._database.read(schedules.next_due)
        if self._next_due is None or self._next_due > now:
            return
        for row in self._database.read(lambda tx: schedules.due_schedules(tx, now)):
            if (row.name, row.due_at) not in self._left:
                self._launch(row, now)
        self._next_due = self._database.read(schedules.next_due)

    def seconds_until_due(self, most: float) -> float:
        """Seconds until the next due time that it knows of, at most `most`, which a new or overdue schedule waits."""
        left = most if self._next_due is None else (self._next_due - self._clock()) / SECOND
        return left if 0 < left < most else most

    def _launch(self, row: ScheduleRow, now: Micros) -> None:
        try:
            onward = go_on(recurrence_of(row), row.due_at, now)
            noted = noted_at_launch(self._admission, spec_of(row.spec), Path(row.root))
            workers = self._admission.workers
            self._database.write(lambda tx: tick(ledger_of(tx), workers, row, now, onward, noted=noted))
        except (LcpError, ValidationError) as error:
            if isinstance(error, LcpError) and error.code in OF_DATABASE:
                raise
            self._leave(row, " ".join(str(error).split()))

    def _leave(self, row: ScheduleRow, why: str) -> None:
        self._left.add((row.name, row.due_at))
        logging.getLogger("lcp_engine").warning("schedule %s cannot be launched here: %s", row.name, why)
        self._database.write(lambda tx: schedules.note_trouble(tx, row, why))


def chores(instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> Iterator[Chore]:
    scheduler = Scheduler(instance.database, instance.clock, instance.admission)
    until_due = partial(scheduler.seconds_until_due, LOOK_SECONDS)
    yield Chore(
        name="schedules", do=scheduler.launch_due, until_due=until_due, is_first=True, is_general=True
    )
