"""Find what people said to a mission's planner in its history (R14)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, literal_column, select, text

from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.schema import events, turns

SAID = "said"
_SAID = Statement(
    select(events.c.job_id, events.c.data)
    .where(events.c.mission_id == bindparam("mission"), text(f"event = '{SAID}'"))
    .where(events.c.seq > bindparam("after"), events.c.seq <= bindparam("until"))
    .order_by(events.c.seq)
)
_LAST_TURN = Statement(
    select(turns.c.until_seq)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.plan_id == bindparam("plan"))
    .where(turns.c.turn < bindparam("turn"))
    .order_by(turns.c.number.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)


def said_to(
    tx: Tx, mission_id: int, plan_id: int, after_seq: int, until_seq: int
) -> Sequence[tuple[int | None, JsonObject]]:
    """What was said to a plan in a stretch of the mission's history: the job that it is about, and the event's data."""
    rows = tx.rows(_SAID, mission=mission_id, after=after_seq, until=until_seq)
    found = [(row[0], from_json(row[1])) for row in rows]
    return [(job_id, said) for job_id, said in found if said.get("plan") == plan_id]


def heard_until(tx: Tx, mission_id: int, plan_id: int, turn: int) -> int:
    """Up to which event earlier turns of a plan have heard everything; a corrective question belongs to its turn."""
    row = tx.row(_LAST_TURN, mission=mission_id, plan=plan_id, turn=turn)
    return 0 if row is None else int(row[0])
