"""Tell from a job's history how a hold of it was answered."""

from __future__ import annotations

from sqlalchemy import bindparam, select, text

from lcp_engine.core.job_states import APPROVE, APPROVE_BLOCKED, HOLD, HOLD_AGAIN, RETRY_HELD
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.row_types import JobRow
from lcp_engine.store.schema import events

_HOLDS = (HOLD.event, HOLD_AGAIN.event, RETRY_HELD.event)
_WORDS = ", ".join(f"'{event}'" for event in (*_HOLDS, APPROVE.event, APPROVE_BLOCKED.event))
_LATEST_FIRST = Statement(
    select(events.c.event, events.c.data)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(text(f"event IN ({_WORDS})"))
    .order_by(events.c.seq.desc())
)
_ANY = Statement(
    select(events.c.seq)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(events.c.event == bindparam("event"))
)

_DECISIONS = Statement(
    select(events.c.data)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(text("event = 'decided'"))
    .order_by(events.c.seq.desc())
)
_DID = {"approve": "approved", "reject": "rejected", "answer": "answered", "retry": "retried"}


def has_event(tx: Tx, job: JobRow, event: str) -> bool:
    """Whether something of that name has happened to the job."""
    return tx.row(_ANY, mission=job.mission_id, job=job.id, event=event) is not None


def last_decision(tx: Tx, job: JobRow) -> str | None:
    """Who decided what of the job last, as the end of a sentence; None where nobody did."""
    row = tx.row(_DECISIONS, mission=job.mission_id, job=job.id)
    if row is None:
        return None
    data = from_json(row[0])
    how = " with other params" if data.get("params") else ""
    return f"{data.get('by')} has {_DID.get(str(data.get('decision')), 'decided')} it{how}"


def unanswered_hold(tx: Tx, job: JobRow) -> str | None:
    """Why the job had to wait for a person who never said yes; None where nothing held it since the last yes."""
    row = tx.row(_LATEST_FIRST, mission=job.mission_id, job=job.id)
    if row is None or row[0] not in _HOLDS:
        return None
    reason = None if row[1] is None else from_json(row[1]).get("reason")
    return str(reason) if reason else "it was held before"


def was_held_for(tx: Tx, job: JobRow, words: str) -> bool:
    """Whether an attempt of the job was held for a reason that has these words: if it runs again, somebody said yes."""
    rows = tx.rows(_LATEST_FIRST, mission=job.mission_id, job=job.id)
    reasons = [from_json(data).get("reason") for event, data in rows if event == HOLD_AGAIN.event and data]
    return any(words in str(reason) for reason in reasons)
