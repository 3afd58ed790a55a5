"""Read history a page at a time and without what may be large: missions, jobs, turns, moves (for the page)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from sqlalchemy import ColumnElement, Select, TextClause, case, column, func, or_, select, table

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.jobs import TRANSITIONS
from lcp_engine.store.history import in_column
from lcp_engine.store.schema import changes, missions, runners
from lcp_engine.store.text import JsonObject
from lcp_engine.store.transaction import Tx
from lcp_engine.store.whereabouts import Where, count_jobs, find_where

LARGEST = 64 * 1024
"""Params and results with more characters are left out of a page."""

_JSON = frozenset({"jobs", "limits", "tokens", "params", "result", "error", "errors", "data"})
_MISSION = (
    "id",
    "name",
    "goal",
    "root",
    "status",
    "outcome",
    "turns",
    "jobs",
    "created_at",
    "started_at",
    "ended_at",
)
_JOB = (
    "id", "mission_id", "turn", "parent_id", "name", "kind", "state", "reason", "attempt", "run_after", "created_at",
    "started_at", "ended_at", "error",
)  # fmt: skip
_TURN = (
    "number", "turn", "job_id", "corrects", "last_turn", "action", "errors", "input_tokens", "output_tokens", "latency",
    "asked_at", "replied_at",
)  # fmt: skip
_LARGE = ("params", "result")
_SEARCHED_TEXT = ("name", "kind", "reason")
_SEARCHED_JSON = ("params", "error", "result")
_MOVES = tuple(transition.event for transition in TRANSITIONS)


@dataclass(frozen=True)
class JobFilter:
    """Which jobs are looked for; what is empty does not matter. `text` stands anywhere, in either case."""

    mission_id: int | None = None
    states: Sequence[str] = ()
    kind: str = ""
    text: str = ""


@dataclass(frozen=True)
class Page:
    """Some rows, and the id to go on behind; None at the end."""

    rows: Sequence[JsonObject]
    behind: int | None


def page_missions(tx: Tx, *, before: int | None, status: str, limit: int) -> Page:
    """Missions, the newest first."""
    where = [column("id") < in_column(before)] if before is not None else []
    if status:
        where.append(column("status") == status)
    clause = _select("mission_overview", _MISSION, where)
    return _page(tx, clause.order_by(column("id").desc()).limit(limit + 1), _MISSION, limit)


def page_jobs(
    tx: Tx, wanted: JobFilter, *, behind: int | None, limit: int, newest_first: bool = False
) -> Page:
    """Jobs that fit, in the order of their ids. Params and results above `LARGEST` read as None."""
    where = _where(tx, wanted)
    if behind is not None:
        behind = in_column(behind)
        where.append(column("id") < behind if newest_first else column("id") > behind)
    there = _count(tx, wanted)
    if not there:
        return Page([], None)
    clause = _select("job_history", _JOB, where).add_columns(*map(_unless_large, _LARGE))
    clause = clause.order_by(column("id").desc() if newest_first else column("id"))
    return _page(tx, clause.limit(min(limit + 1, there)), (*_JOB, *_LARGE), limit)


@dataclass(frozen=True)
class HeldHead:
    """A held job without what may be large."""

    id: int
    mission_id: int
    kind: str
    reason: str | None


def find_held_heads(tx: Tx, wanted: JobFilter, *, until: int | None, limit: int) -> list[HeldHead]:
    """Jobs that fit, in the order of their ids, up to the id `until`."""
    names = ("id", "mission_id", "kind", "reason")
    where = _where(tx, wanted)
    if until is not None:
        where.append(column("id") <= in_column(until))
    clause = _select("job_history", names, where).order_by(column("id")).limit(limit)
    return [HeldHead(*row) for row in tx.query(clause)]


def find_turn_heads(tx: Tx, mission_id: int, first: int, last: int) -> list[JsonObject]:
    """The questions that jobs `first` to `last` asked, without prompt and reply."""
    where = [column("mission_id") == in_column(mission_id), column("job_id").between(first, last)]
    return _read(tx, _select("turn_history", _TURN, where).order_by(column("number")), _TURN)


def find_turn(tx: Tx, mission_id: int, number: int) -> JsonObject:
    """A question with prompt and reply. Raises `NOT_FOUND`."""
    names = (*_TURN, "prompt", "reply")
    where = [column("mission_id") == in_column(mission_id), column("number") == in_column(number)]
    found = _read(tx, _select("turn_history", names, where), names)
    if not found:
        raise LcpError(
            ErrorCode.NOT_FOUND, f"question {number} of mission {mission_id} is not in the database"
        )
    return found[0]


def find_moves(tx: Tx, mission_id: int, first: int, last: int) -> list[JsonObject]:
    """The changes of state of jobs `first` to `last`, in order."""
    names = ("job_id", "at", "event")
    where = [
        column("mission_id") == mission_id,
        column("job_id").between(first, last),
        column("event").in_(_MOVES),
    ]
    return _read(tx, _select("event_history", names, where).order_by(column("seq")), names)


def count_held(tx: Tx) -> int:
    """How many jobs wait for a person, in all missions."""
    return int(tx.query(select(func.coalesce(func.sum(missions.c.held), 0)))[0][0])


def count_runners(tx: Tx) -> int:
    """How many processes execute jobs of this database now."""
    lives = (runners.c.ended_at.is_(None), runners.c.alive_until > tx.now)
    return int(tx.query(select(func.count()).select_from(runners).where(*lives))[0][0])


def has_changed(tx: Tx, mission_id: int) -> bool:
    """Whether the mission has done anything to a file."""
    where = (changes.c.mission_id == in_column(mission_id), changes.c.state == "applied")
    return bool(tx.query(select(changes.c.id).where(*where).limit(1)))


def _count(tx: Tx, wanted: JobFilter) -> int:
    """How many jobs fit at most."""
    mission_id = None if wanted.mission_id is None else in_column(wanted.mission_id)
    return count_jobs(tx, mission_id, wanted.states)


def _where(tx: Tx, wanted: JobFilter) -> Where:
    mission_id = None if wanted.mission_id is None else in_column(wanted.mission_id)
    where = find_where(tx, mission_id, wanted.states)
    if wanted.kind:
        where.append(column("kind") == wanted.kind)
    if wanted.text:
        plain, written = wanted.text, json.dumps(wanted.text, ensure_ascii=False)[1:-1]
        texts = [_contains(name, plain) for name in _SEARCHED_TEXT]
        where.append(or_(*texts, *(_contains(name, written) for name in _SEARCHED_JSON)))
    return where


def _contains(name: str, text: str) -> ColumnElement[bool]:
    searched: ColumnElement[str] = column(name)
    literally = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return searched.ilike(f"%{literally}%", escape="\\")


def _unless_large(name: str) -> ColumnElement[str]:
    value: ColumnElement[str] = column(name)
    return case((func.length(value) <= LARGEST, value), else_=None).label(name)


def _select(
    view: str, names: Sequence[str], where: Sequence[ColumnElement[bool] | TextClause]
) -> Select[*tuple[object, ...]]:
    columns: list[ColumnElement[object]] = [column(name) for name in names]
    clause: Select[*tuple[object, ...]] = select(*columns).select_from(table(view)).where(*where)
    return clause


def _page(tx: Tx, clause: Select[*tuple[object, ...]], names: Sequence[str], limit: int) -> Page:
    rows = _read(tx, clause, names)
    last = rows[limit - 1]["id"] if len(rows) > limit else None
    return Page(rows[:limit], last if isinstance(last, int) else None)


def _read(tx: Tx, clause: Select[*tuple[object, ...]], names: Sequence[str]) -> list[JsonObject]:
    return [dict(zip(names, map(_value, names, row), strict=True)) for row in tx.query(clause)]


def _value(name: str, value: str | float | None) -> JsonValue:
    if name not in _JSON or not isinstance(value, str):
        return value
    parsed: JsonValue = json.loads(value)
    return parsed
