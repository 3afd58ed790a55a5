"""Read the decisions of people over all missions, the newest first, with what they had been shown and said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lcp_engine.core.json_values import JsonObject, JsonValue, object_in
from lcp_engine.core.safe_text import is_storable
from lcp_engine.store.db.sql import Param, Sql
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.queries.selection import Condition, find

LARGEST = 64 * 1024
"""Params and results with more characters are left out of what a job is about, and of its words."""
SEARCHED = 5_000
"""Decisions that one call looks through, so that a filter costs the same beside any history."""

# In the words of its index.
_ARE = "e.event IN ('decided', 'consented')"
_BEHIND = "(e.at, e.mission_id, e.seq) < (:at, :mission, :seq)"
_SEARCHED = "(e.at, e.mission_id, e.seq) >= (:to, :to_mission, :to_seq)"
_ORDER = "ORDER BY e.at DESC, e.mission_id DESC, e.seq DESC"
_LAST_SEARCHED = Sql(
    f"SELECT e.at, e.mission_id, e.seq FROM events e WHERE {_ARE} AND {_BEHIND} {_ORDER} LIMIT 1 OFFSET :before",
    at=int,
    mission=int,
    seq=int,
    before=int,
)
_SELECT = (
    "SELECT e.at, e.mission_id, e.seq, e.job_id, e.event, e.data, m.name, j.kind, j.name, "
    f"CASE WHEN length(j.params) <= {LARGEST} THEN j.params END, "
    f"CASE WHEN length(j.result) <= {LARGEST} THEN j.result END "
    "FROM events e LEFT JOIN missions m ON m.id = e.mission_id LEFT JOIN job_history j ON j.id = e.job_id"
)
_SHOWN = Sql(
    "SELECT path, sha256 FROM approvals WHERE job_id = :job AND person = :who AND at <= :at "
    "ORDER BY attempt DESC LIMIT 1",
    job=int,
    who=str,
    at=int,
)
# Words come with an approval in its transaction, which has one time.
_SAID = Sql(
    "SELECT data FROM events WHERE mission_id = :mission AND seq BETWEEN :first AND :last AND job_id = :job "
    "AND event = 'said' AND at = :at",
    mission=int,
    job=int,
    at=int,
    first=int,
    last=int,
)
_NEAR = 50
"""Events between an approval and its words: those of one transaction."""


Place: TypeAlias = tuple[int, int, int]
"""Time, mission and number of an event, in whose order decisions are listed."""


@dataclass(frozen=True)
class Found:
    """A decision as it is stored, with the file that an approval was about, and the words that came with it."""

    row: Row
    data: JsonObject
    shown: Sequence[JsonValue]
    said: str


_FILTERS = {
    # Others whose data has these letters are left out below.
    "by": "e.data LIKE :by ESCAPE '\\'",
    "kind": "j.kind = :kind",
    "of": "e.mission_id = :of",
    "since": "e.at >= :since",
    "until": "e.at < :until",
}


def find_decisions(
    tx: Tx, start: Place, wanted: Mapping[str, Param | None], limit: int
) -> tuple[list[Found], Place | None]:
    """The newest decisions that fit all that is `wanted`, behind a place, and where those behind them begin.

    At most `limit`, of the first `SEARCHED` behind that place.
    """
    place: dict[str, Param] = dict(zip(("at", "mission", "seq"), start, strict=True))
    by, last = wanted.get("by"), tx.row(_LAST_SEARCHED, **place, before=SEARCHED - 1)
    if not is_storable([*wanted.values()]):
        return [], None
    given = {**wanted, "by": None if by is None else _pattern(str(by))}
    conditions = [
        Condition(_FILTERS[name], {name: value}) for name, value in given.items() if value is not None
    ]
    if last is not None:
        conditions.append(Condition(_SEARCHED, dict(zip(("to", "to_mission", "to_seq"), last, strict=True))))
    then = f"{_ORDER} LIMIT :most"
    rows = find(
        tx, _SELECT, Condition(_ARE), Condition(_BEHIND, place), *conditions, then=then, most=limit + 1
    )
    if len(rows) > limit:
        last = rows[limit - 1]
    found = [_whole(tx, row) for row in rows[:limit]]
    behind = None if last is None else (last[0], last[1], last[2])
    return [one for one in found if by in (None, one.data.get("by"))], behind


def _pattern(by: str) -> str:
    written = json.dumps(by, ensure_ascii=False)
    literally = written.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f'%"by":{literally}%'


def _whole(tx: Tx, row: Row) -> Found:
    at, mission, seq, job, event = row[:5]
    data = object_in(json.loads(row[5]))
    shown: Sequence[JsonValue] = (data.get("path"), data.get("found"))
    if data.get("decision") == "approve":
        shown = tx.row(_SHOWN, job=job, who=str(data["by"]), at=at) or shown
    said = None
    if event == "consented" or data.get("decision") == "approve":
        said = tx.row(_SAID, mission=mission, job=job, at=at, first=seq - _NEAR, last=seq + _NEAR)
    return Found(
        row, data, shown, "" if said is None else str(object_in(json.loads(said[0])).get("text", ""))
    )
