"""Find held jobs that nobody decided on in time (`hold_timeout`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import bindparam, select, text

from lcp_engine.clock import Micros, iso
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.schema import jobs

_HELD = text("state = 'held'")
_DUE = Statement(
    select(jobs.c.id, jobs.c.mission_id)
    .where(_HELD, jobs.c.held_until <= bindparam("now"))
    .order_by(jobs.c.held_until)
    .limit(bindparam("most"))
    .offset(bindparam("none"))
)
_EXPIRING = Statement(select(jobs.c.id, jobs.c.held_until).where(_HELD, jobs.c.held_until.is_not(None)))
MOST = 100


@lru_cache(maxsize=256)
def hold_seconds(spec: str) -> float | None:
    """How long a person has to decide on a held job of a mission, whose spec is given as it is stored."""
    stated = json.loads(spec).get("hold_timeout")
    return None if stated is None else float(stated)


def due_holds(tx: Tx, now: Micros) -> Sequence[tuple[int, int]]:
    """Held jobs whose time is over, at most `MOST` of them: each with its mission."""
    return [(row[0], row[1]) for row in tx.rows(_DUE, now=now, most=MOST, none=0)]


def find_expiries(tx: Tx) -> dict[int, str]:
    """When each held job that expires does, as ISO 8601."""
    return {row[0]: iso(row[1]) for row in tx.rows(_EXPIRING)}
