"""Conditions and values that tables, indexes and queries share. Needs no SQLAlchemy."""

from __future__ import annotations

from lcp_engine.core.kinds import MERGE

OVERLAPS = ("skip", "allow")
TICKS = ("launched", "skipped")
STATUSES = ("running", "waiting", "completed", "failed", "cancelled")
LIVE = "ended_at IS NULL"
"""Jobs that are not settled. Written the same in index and query, or SQLite would not use the partial index."""
READY = "state = 'queued' AND run_after IS NULL AND limited_by IS NULL"
"""Jobs to claim; the delayed ones become ready once they are due, those set aside once there is a permit."""
WAITING = "state = 'queued' AND limited_by IS NOT NULL"
"""Jobs that are set aside until a limit has a permit for them."""
DELAYED = "state = 'queued' AND run_after IS NOT NULL"
NEXT_TURN = "state = 'blocked' AND reason IS NOT NULL AND coalesce(waits_for, 0) = 0"
"""Turns and steps that wait for nothing but the turn before; one whose own plan goes on is blocked without a reason."""
OPEN_SUB_PLAN = "job_id IS NOT NULL AND outcome IS NULL"
SCHEDULED = "schedule IS NOT NULL AND ended_at IS NULL"
OF_SESSION = "session_id IS NOT NULL"
APPENDED = "base IS NOT NULL"
"""Missions of schedules that have not ended; written the same everywhere, like `LIVE`."""
UNSENT = "state = 'unsent'"
"""Notices that a webhook is still to be sent."""
OUTCOMES = ("unsent", "delivered", "outdated", "given_up")
EXPIRING = "expires_at IS NOT NULL"
TERMS_ON_POSTGRES = "array_to_tsvector(string_to_array(terms, ' '))"
"""What finds entries of memory on PostgreSQL; written the same in index and query."""
# A merge waits for a person, or an interrupted one is carried out from the stage.
IS_OVER = (
    "m.ended_at IS NOT NULL AND m.queued + m.running + m.blocked = 0 AND NOT EXISTS (SELECT 1 FROM jobs j "
    f"WHERE j.mission_id = m.id AND j.kind = '{MERGE}' AND j.state = 'held') AND NOT EXISTS (SELECT 1 FROM changes c "
    "WHERE c.mission_id = m.id AND c.state = 'intent')"
)
"""Condition of a mission `m` that has ended, and of which nothing is still to be decided or carried out."""
