"""Store schedules: missions that are launched repeatedly, when they are due, and their last outcomes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any  # noqa: TID251 -- a row has no types until it is a record

from pydantic import JsonValue
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    null,
    select,
    text,
    update,
)

from lcp_engine.clock import Micros, iso
from lcp_engine.core.times.recurrence import NEVER, from_stored, shown
from lcp_engine.store.conditions import OVERLAPS, SCHEDULED, TICKS
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import counter, metadata, missions, one_of

schedules = Table(
    "schedules",
    metadata,
    Column("name", Text, primary_key=True),
    Column("every", BigInteger),
    Column("cron", Text),
    Column("timezone", Text),
    Column("overlap", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("root", Text, nullable=False),
    Column("due_at", BigInteger, nullable=False, index=True),
    counter("missed"),
    counter("skipped"),
    Column("last_due_at", BigInteger),
    Column("last_at", BigInteger),
    Column("last_outcome", Text),
    counter("last_missed"),
    Column("mission_id", ForeignKey("missions.id")),
    Column("error", Text),
    Column("created_at", BigInteger, nullable=False),
    one_of("overlap", OVERLAPS),
    one_of("last_outcome", TICKS),
    CheckConstraint("(every IS NULL) = (cron IS NOT NULL AND timezone IS NOT NULL)", name="recurrence"),
    sqlite_with_rowid=False,
)
"""Missions that are launched repeatedly: the one that is due at `due_at` next, and the outcome of the due time
before. `mission_id` is the newest mission of it. `cron` has every recurrence that goes by a timezone, as a text of
`core/times/recurrence.py`; one that is due no more is due at the largest number."""


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule as it is stored: `every` in microseconds, or a text in a timezone, as `stored_text` makes it."""

    name: str
    every: Micros | None
    cron: str | None
    timezone: str | None
    overlap: str
    spec: str
    root: str
    due_at: Micros


@dataclass(frozen=True)
class Tick:
    """The outcome of a due time, when, and how many were missed between it and the next one."""

    outcome: str
    at: Micros
    missed: int
    next_due: Micros


_GIVEN = tuple(field.name for field in fields(ScheduleRow))
_ROW = select(*(schedules.c[name] for name in _GIVEN))
_NAMED = schedules.c.name == bindparam("schedule")
_STILL_DUE = (_NAMED, schedules.c.due_at == bindparam("due"))
_DUE = Statement(
    _ROW.where(schedules.c.due_at <= bindparam("now")).order_by(schedules.c.due_at, schedules.c.name)
)
_NEXT_DUE = Statement(select(func.min(schedules.c.due_at)))
_FIND = Statement(_ROW.where(_NAMED).with_for_update())
# The transaction that has it locked handles it.
_TAKE = Statement(_ROW.where(_NAMED).with_for_update(skip_locked=True))
_INSERT = Statement(insert(schedules).values({name: bindparam(name) for name in (*_GIVEN, "created_at")}))
_REPLACE = Statement(
    update(schedules)
    .where(_NAMED)
    .values({**{name: bindparam(f"new_{name}") for name in _GIVEN if name != "name"}, "error": null()})
)
_REMOVE = Statement(delete(schedules).where(_NAMED))
_MOVE_ON = Statement(
    update(schedules)
    .where(*_STILL_DUE)
    .values(
        due_at=bindparam("next_due"),
        missed=schedules.c.missed + bindparam("more_missed"),
        skipped=schedules.c.skipped + bindparam("more_skipped"),
        last_due_at=schedules.c.due_at,
        last_at=bindparam("at"),
        last_outcome=bindparam("outcome"),
        last_missed=bindparam("more_missed"),
        error=null(),
    )
)
_NEWEST = Statement(update(schedules).where(_NAMED).values(mission_id=bindparam("mission")))
_LABEL = Statement(
    update(missions).where(missions.c.id == bindparam("mission")).values(schedule=bindparam("schedule"))
)
_OPEN = Statement(
    select(missions.c.id)
    .where(missions.c.schedule == bindparam("schedule"), text(SCHEDULED))
    # One that was removed may have had the same name.
    .where(missions.c.created_at >= select(schedules.c.created_at).where(_NAMED).scalar_subquery())
    .order_by(missions.c.id.desc())
)
_FAIL = Statement(update(schedules).where(*_STILL_DUE).values(error=bindparam("message")))
_NAMES = Statement(select(schedules.c.name).order_by(schedules.c.name))
_ALL = Statement(
    select(schedules, missions.c.status, missions.c.outcome)
    .join_from(schedules, missions, missions.c.id == schedules.c.mission_id, isouter=True)
    .order_by(schedules.c.name)
)
_COLUMNS = (*schedules.c.keys(), "mission_status", "mission_outcome")


def due_schedules(tx: Tx, now: Micros) -> list[ScheduleRow]:
    """Schedules that are due, the longest due first."""
    return [ScheduleRow(*row) for row in tx.rows(_DUE, now=now)]


def next_due(tx: Tx) -> Micros | None:
    """When a schedule is due next; None if there are none."""
    row = tx.row(_NEXT_DUE)
    assert row is not None
    return None if row[0] is None else int(row[0])


def find_schedule(tx: Tx, name: str) -> ScheduleRow | None:
    """The schedule, locked until the transaction ends."""
    row = tx.row(_FIND, schedule=name)
    return None if row is None else ScheduleRow(*row)


def schedule_names(tx: Tx) -> list[str]:
    return [str(row[0]) for row in tx.rows(_NAMES)]


def put_schedule(tx: Tx, row: ScheduleRow, *, replace: bool) -> None:
    """Store a new schedule, or other settings and another due time for one that is there."""
    given = {name: getattr(row, name) for name in _GIVEN}
    if replace:
        del given["name"]
        tx.run(_REPLACE, schedule=row.name, **{f"new_{name}": value for name, value in given.items()})
    else:
        tx.run(_INSERT, **given, created_at=tx.now)


def remove_schedule(tx: Tx, name: str) -> None:
    """Forget a schedule; its missions stay."""
    tx.run(_REMOVE, schedule=name)


def take_due(tx: Tx, seen: ScheduleRow) -> bool:
    """Lock a schedule that has not changed. False if another transaction handles it, or has handled it."""
    row = tx.row(_TAKE, schedule=seen.name)
    return row is not None and ScheduleRow(*row) == seen


def move_on(tx: Tx, row: ScheduleRow, tick: Tick) -> None:
    """Store the outcome of a due time, and when the next one is."""
    tx.run(
        _MOVE_ON,
        schedule=row.name,
        due=row.due_at,
        next_due=tick.next_due,
        at=tick.at,
        outcome=tick.outcome,
        more_missed=tick.missed,
        more_skipped=int(tick.outcome == "skipped"),
    )


def note_launch(tx: Tx, name: str, mission_id: int) -> None:
    """A mission belongs to a schedule, and is the newest one of it."""
    tx.run(_LABEL, mission=mission_id, schedule=name)
    tx.run(_NEWEST, schedule=name, mission=mission_id)


def note_trouble(tx: Tx, row: ScheduleRow, message: str) -> None:
    """Note why a due schedule cannot be launched."""
    tx.run(_FAIL, schedule=row.name, due=row.due_at, message=message)


def open_missions(tx: Tx, name: str) -> list[int]:
    """The missions of a schedule that run or wait, the newest first."""
    return [int(row[0]) for row in tx.rows(_OPEN, schedule=name)]


def list_schedules(tx: Tx) -> list[JsonObject]:
    """Every schedule as a JSON object, by name; `last` is the due time before `next_due_at`, `mission` the newest."""
    return [_shown(dict(zip(_COLUMNS, row, strict=True))) for row in tx.rows(_ALL)]


def _shown(row: dict[str, Any]) -> JsonObject:
    spec = from_json(row["spec"])
    last: JsonValue = None
    if row["last_at"] is not None:
        last = {
            "due_at": iso(row["last_due_at"]),
            "at": iso(row["last_at"]),
            "outcome": row["last_outcome"],
            "missed": row["last_missed"],
        }
    mission: JsonValue = None
    if row["mission_id"] is not None:
        mission = {
            "id": row["mission_id"],
            "status": row["mission_status"],
            "outcome": row["mission_outcome"],
        }
    planner = spec["planner"]
    return {
        "name": row["name"],
        **shown(from_stored(row["every"], row["cron"], row["timezone"])),
        "overlap": row["overlap"],
        "mission_name": spec["name"],
        "goal": spec["goal"],
        "root": row["root"],
        "planner": planner["type"] if isinstance(planner, dict) else None,
        "next_due_at": None if row["due_at"] == NEVER else iso(row["due_at"]),
        "missed": row["missed"],
        "skipped": row["skipped"],
        "last": last,
        "mission": mission,
        "error": row["error"],
        "created_at": iso(row["created_at"]),
    }
