"""Read how far a mission has come, as `core.progress` measures it."""

from __future__ import annotations

from lcp_engine.core.job_states import State
from lcp_engine.features.reports.facts import Course, Excerpt, JobFact
from lcp_engine.features.reports.progress import ADDS, COMPLETED, COUNTED, DOES, MARGIN
from lcp_engine.features.reports.store.excerpt import IS_NO_TURN, JOB, excerpt, read_jobs
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.history import LARGEST, find_events, find_where, in_column
from lcp_engine.store.queries.selection import Condition, equal, find

MOST_LISTED = 200


def _so_far(names: tuple[str, ...]) -> str:
    """Number of events of these names up to a row."""
    counted = f"CASE WHEN event IN ({', '.join(map(repr, names))}) THEN 1 ELSE 0 END"
    return f"sum({counted}) OVER (ORDER BY seq)"


_NAMES = ", ".join(map(repr, COUNTED))
_MEASURE = f"100 * {_so_far(DOES)} / ({_so_far(ADDS)} + {MARGIN})"
_PERCENTAGES = Sql(
    f"""
SELECT max(measure), max(CASE WHEN seq <= :since THEN measure ELSE 0 END)
FROM (
    SELECT seq, CASE WHEN event = '{COMPLETED}' THEN 100 ELSE {_MEASURE} END AS measure
    FROM events WHERE mission_id = :mission AND event IN ({_NAMES}) AND seq <= :until
) AS moments
""",
    mission=int,
    since=int,
    until=int,
)


def find_course(tx: Tx, mission_id: int, since: int | None = None) -> Course:
    """Course of the mission since event `since`; since its newest question where that is None."""
    if since is None:
        since = newest_question(tx, mission_id)
    percentage, before = percentages(tx, mission_id, since)
    counters = "SELECT events, ran, running_since FROM missions"
    event, ran, running_since = find(tx, counters, equal("id", mission_id))[0]
    newest = find_events(tx, mission_id, after_seq=event - 1)[0]
    succeeded = (*find_where(tx, mission_id, (State.SUCCEEDED,)).conditions, IS_NO_TURN)
    running = find_where(tx, mission_id, (State.RUNNING,)).conditions
    return Course(
        event=event,
        at=str(newest["at"]),
        since=since,
        percentage=percentage,
        before=before,
        covered=_jobs(tx, *succeeded),
        news=_jobs(tx, *succeeded, Condition("settled_seq > :since", {"since": in_column(since)})),
        running=_jobs(tx, *running),
        seconds=(ran + (max(0, tx.now - running_since) if running_since is not None else 0)) / 1_000_000,
    )


def newest_question(tx: Tx, mission_id: int) -> int:
    """The number of the event with which the mission's newest question was asked; 0 before the first."""
    asked = (equal("mission_id", mission_id), equal("event", "asked"))
    found = find(tx, "SELECT seq FROM events", *asked, then="ORDER BY seq DESC LIMIT 1")
    return int(found[0][0]) if found else 0


def percentages(tx: Tx, mission_id: int, since: int, until: int | None = None) -> tuple[int, int]:
    """The percentage at event `until` (None: now), and that at event `since`."""
    last = LARGEST if until is None else until
    now, before = tx.rows(_PERCENTAGES, mission=mission_id, since=in_column(since), until=last)[0]
    return int(now or 0), int(before or 0)


def _jobs(tx: Tx, *where: Condition) -> Excerpt[JobFact]:
    total = JOB.count(tx, *where)
    return Excerpt(read_jobs(tx, excerpt(tx, JOB, where, total, MOST_LISTED)), total)
