"""Launch missions again and again: keep schedules, and deal with what is due (one transaction each)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from lcp_engine.clock import Micros, iso
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.mission.stored import spec_of
from lcp_engine.core.recurrence import Cron, Every, Onward, Recurrence, first_due
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.missions import steer
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store import schedules
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.schedules import ScheduleRow, Tick

Overlap: TypeAlias = Literal["skip", "allow"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Wanted:
    """A schedule to be stored: `spec` over `root` is launched when `recurrence` says.

    `overlap`: what to do where a mission of it runs or waits still when the next is due.
    """

    name: str
    spec: MissionSpec
    root: Path
    recurrence: Recurrence
    overlap: Overlap = "skip"


def add(tx: Tx, wanted: Wanted, now: Micros, *, replace: bool = False) -> None:
    """Store a schedule, which is due first after `now`. Raises `INVALID_ARGUMENT` for a name that is none or taken.

    With `replace` one of that name gets the other settings, and keeps its missions and its counts.
    """
    if not _NAME.fullmatch(wanted.name):
        expected = "1 to 64 letters, digits, '.', '_' and '-', the first a letter or a digit"
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, f"a schedule's name has to be {expected}; it is {wanted.name!r}"
        )
    known = schedules.find_schedule(tx, wanted.name) is not None
    if known and not replace:
        message = (
            f"schedule {wanted.name!r} has to be a new name; there is one (--replace gives it other settings)"
        )
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    rule = wanted.recurrence
    row = ScheduleRow(
        name=wanted.name,
        every=rule.length if isinstance(rule, Every) else None,
        cron=rule.expression if isinstance(rule, Cron) else None,
        timezone=rule.timezone if isinstance(rule, Cron) else None,
        overlap=wanted.overlap,
        spec=wanted.spec.model_dump_json(by_alias=True),
        root=str(wanted.root),
        due_at=first_due(rule, now),
    )
    schedules.put_schedule(tx, row, replace=known)


def remove(tx: Tx, name: str) -> None:
    """Forget a schedule; its missions go on. Raises `NOT_FOUND`."""
    find(tx, name)
    schedules.remove_schedule(tx, name)


def find(tx: Tx, name: str) -> ScheduleRow:
    """The schedule, which nobody else changes until the transaction ends. Raises `NOT_FOUND`."""
    row = schedules.find_schedule(tx, name)
    if row is None:
        raise is_not_there(name, schedules.schedule_names(tx))
    return row


def is_not_there(name: str, known: Sequence[str]) -> LcpError:
    """The error for a name that no schedule has."""
    return LcpError(ErrorCode.NOT_FOUND, f"schedule {name!r} is not in the database; {nearest(name, known)}")


def launch_now(ledger: Ledger, name: str) -> int:
    """Launch the mission of a schedule, which is due later as before; the mission's id. Raises `NOT_FOUND`."""
    row = find(ledger.tx, name)
    mission_id = steer.launch(ledger, spec_of(row.spec), Path(row.root), about={"schedule": name})
    schedules.note_launch(ledger.tx, name, mission_id)
    return mission_id


def tick(ledger: Ledger, row: ScheduleRow, now: Micros, onward: Onward) -> None:
    """Launch what is due once, whoever else does so, and move the schedule on.

    Where a mission of it runs or waits and may not overlap, the due time is skipped.
    """
    tx = ledger.tx
    if not schedules.take_due(tx, row):
        return
    is_launched = row.overlap == "allow" or not schedules.open_missions(tx, row.name)
    if is_launched:
        due = iso(row.due_at)
        mission_id = steer.launch(
            ledger,
            spec_of(row.spec),
            Path(row.root),
            key=f"schedule:{row.name}:{due}",
            about={"schedule": row.name, "due_at": due, "missed": onward.missed},
        )
        schedules.note_launch(tx, row.name, mission_id)
    outcome = "launched" if is_launched else "skipped"
    schedules.move_on(tx, row, Tick(outcome, now, onward.missed, onward.next_due))


def recurrence_of(row: ScheduleRow) -> Recurrence:
    """When a schedule is due."""
    if row.every is not None:
        return Every(row.every)
    assert row.cron is not None
    assert row.timezone is not None
    return Cron(row.cron, row.timezone)
