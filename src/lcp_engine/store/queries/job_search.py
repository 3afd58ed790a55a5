"""Narrow a search for jobs to where they can be: no index lists all jobs of a mission, or those in a settled state.

Such an index would cost every job a page in every commit. Instead the jobs of a mission are found between its first
and its last one, and the counters of missions tell how many there are to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import BigInteger, TextClause, bindparam, text

from lcp_engine.core.job_states import CREATIONS, SETTLED, State
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.queries.view_reader import Condition, Param
from lcp_engine.store.schema import LIVE

_CREATED = f"event IN ({', '.join(repr(made.event) for made in CREATIONS.values())})"
_OF_MISSION = "SELECT job_id FROM events WHERE mission_id = :mission AND job_id IS NOT NULL"
_FIRST = f"{_OF_MISSION} ORDER BY seq LIMIT 1"
_LAST = f"{_OF_MISSION} AND {_CREATED} ORDER BY seq DESC LIMIT 1"

_WITHIN = "mission_id = :mission AND id BETWEEN :first AND :last"


@dataclass(frozen=True)
class Where:
    """Jobs that are looked for: how many there are, and what holds for their `id`, `mission_id` and `state`."""

    count: int
    conditions: tuple[Condition, ...]

    @property
    def clauses(self) -> list[TextClause]:
        return [condition.clause for condition in self.conditions]


def find_where(tx: Tx, mission_id: int | None, states: Sequence[str] = ()) -> Where:
    """Where the jobs in some states are, of one mission or all; no states are all states."""
    named = tuple(sorted(State(state).value for state in states))
    are_live = bool(named) and not any(State(state) in SETTLED for state in named)
    mission: dict[str, Param] = {} if mission_id is None else {"mission": mission_id}
    ((count, *span),) = tx.rows(_look(named, bool(mission), bool(mission) and not are_live), **mission)
    if are_live:  # by their index: for the order of the ids, SQLite would rather walk through all there are
        of_mission = " AND mission_id = :mission" if mission else ""
        live = f"id IN (SELECT id FROM jobs WHERE {LIVE} AND {_in(named)}{of_mission})"
        return Where(int(count), (Condition(live, mission),))
    conditions = [Condition(_in(named))] if named else []
    if span:
        between = {"first": span[0] or 1, "last": span[1] or 0}
        conditions.append(Condition(_WITHIN, {**mission, **between}))
    return Where(int(count), tuple(conditions))


def _in(states: tuple[str, ...]) -> str:
    return f"state = '{states[0]}'" if len(states) == 1 else f"state IN ({', '.join(map(repr, states))})"


@cache
def _look(states: tuple[str, ...], has_mission: bool, has_span: bool) -> Statement:
    """Counts the jobs in some states, and finds the ids of the first and the last job of a mission."""
    counted = " + ".join(f"coalesce(sum({state}), 0)" for state in states or tuple(State))
    of_mission = " WHERE id = :mission" if has_mission else ""
    span = f", ({_FIRST}), ({_LAST})" if has_span else ""
    clause = text(f"SELECT {counted}{span} FROM missions{of_mission}")
    return Statement(clause.bindparams(bindparam("mission", type_=BigInteger())) if has_mission else clause)
