"""Narrow a search for jobs to where they can be: no index lists all jobs of a mission, or those in a settled state.

Such an index would cost every job a page in every commit. Instead the jobs of a mission are found between its first
and its last one, and the counters of missions tell how many there are to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sqlalchemy import ColumnElement, TextClause, column, text

from lcp_engine.jobs import CREATIONS, SETTLED, State
from lcp_engine.store.schema import LIVE
from lcp_engine.store.transaction import Tx

_CREATED = f"event IN ({', '.join(repr(made.event) for made in CREATIONS.values())})"


Where: TypeAlias = list[ColumnElement[bool] | TextClause]


def find_where(tx: Tx, mission_id: int | None, states: Sequence[str] = ()) -> Where:
    """What holds for all jobs of a mission in some states, of columns `id`, `mission_id` and `state`.

    What is empty does not matter.
    """
    if states and not any(State(state) in SETTLED for state in states):
        return [_live(mission_id, states)]
    found: Where = [] if not states else [_in(states)]
    if mission_id is not None:
        found += [column("mission_id") == mission_id, _within(tx, mission_id)]
    return found


def count_jobs(tx: Tx, mission_id: int | None, states: Sequence[str] = ()) -> int:
    """How many jobs there are in some states (all), of one mission or all."""
    counted = " + ".join(f"coalesce(sum({State(state).value}), 0)" for state in states or State)
    where = "" if mission_id is None else f" WHERE id = {mission_id}"
    return int(tx.query_plain(f"SELECT {counted} FROM missions{where}")[0][0])


def _live(mission_id: int | None, states: Sequence[str]) -> TextClause:
    """By the index of live jobs: for the order of the ids, SQLite would rather walk through all there are."""
    of_mission = "" if mission_id is None else f" AND mission_id = {mission_id}"
    return text(f"id IN (SELECT id FROM jobs WHERE {LIVE} AND {_in(states)}{of_mission})")


def _in(states: Sequence[str]) -> TextClause:
    named = sorted(State(state).value for state in states)
    return text(f"state = '{named[0]}'" if len(named) == 1 else f"state IN ({', '.join(map(repr, named))})")


def _within(tx: Tx, mission_id: int) -> ColumnElement[bool]:
    ids: ColumnElement[int] = column("id")
    return ids.between(*_span(tx, mission_id))


def _span(tx: Tx, mission_id: int) -> tuple[int, int]:
    """The ids of the first and the last job of a mission, which were made in this order; an empty span without jobs."""
    events = f"SELECT job_id FROM events WHERE mission_id = {mission_id} AND job_id IS NOT NULL"
    first = tx.query_plain(f"{events} ORDER BY seq LIMIT 1")
    last = tx.query_plain(f"{events} AND {_CREATED} ORDER BY seq DESC LIMIT 1")
    return (first[0][0], last[0][0]) if first and last else (1, 0)
