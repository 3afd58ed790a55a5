"""Read what became of the notices of the webhook."""

from __future__ import annotations

from lcp_engine.clock import Micros, iso
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.queries.selection import find

_NAMES = ("id", "mission_id", "state", "attempts", "http_status", "error")
_TIMES = ("created_at", "tried_at", "next_at", "ended_at")
_DELIVERIES = (
    f"SELECT m.uid, d.seq, {', '.join(f'd.{name}' for name in (*_NAMES, *_TIMES))} FROM deliveries d "
    "JOIN missions m ON m.id = d.mission_id"
)
_ORDER = "ORDER BY d.id DESC"


def find_deliveries(tx: Tx, limit: int | None) -> list[JsonObject]:
    """The notices, newest first; `next_at` is None for one that is not sent any more."""
    if limit is None:
        return [_delivery(row) for row in find(tx, _DELIVERIES, then=_ORDER)]
    return [_delivery(row) for row in find(tx, _DELIVERIES, then=f"{_ORDER} LIMIT :most", most=limit)]


_UNTRIED = Sql(
    "SELECT state, count(*), min(created_at) FROM deliveries WHERE attempts = 0 "
    "AND (state = 'unsent' AND created_at < :before OR state = 'outdated' AND created_at >= :since) "
    "GROUP BY state ORDER BY state",
    before=int,
    since=int,
)


def untried(tx: Tx, *, before: Micros, since: Micros) -> list[tuple[str, int, Micros]]:
    """Count the notices that no runner has sent: unsent ones from `before`, and outdated ones `since`.

    Each with its state, their number, and when the oldest one was to be sent.
    """
    return [
        (str(state), int(count), int(oldest))
        for state, count, oldest in tx.rows(_UNTRIED, before=before, since=since)
    ]


def _delivery(row: Row) -> JsonObject:
    uid, seq, *values = row
    found: JsonObject = dict(zip((*_NAMES, *_TIMES), values, strict=True))
    times: dict[str, JsonValue] = {
        name: None if found[name] is None else iso(int(str(found[name]))) for name in _TIMES
    }
    if times["ended_at"] is not None:
        times["next_at"] = None
    return {**found, **times, "notice": f"{uid}-{seq}"}
