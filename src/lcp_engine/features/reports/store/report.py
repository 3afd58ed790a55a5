"""Sum the history of a mission up in a few statements, however many jobs and turns it has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeVar

from lcp_engine.clock import iso
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject
from lcp_engine.errors import ErrorCode
from lcp_engine.features.reports.facts import Excerpt, Facts, FileFact, JobFact, TurnFact, UndoneFact
from lcp_engine.features.reports.store.excerpt import IS_NO_TURN, JOB, excerpt, read_jobs
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.queries.file_changes import has_undone, timeline_of
from lcp_engine.store.queries.history import find_mission, find_where
from lcp_engine.store.queries.records import Mission
from lcp_engine.store.queries.selection import Columns, Condition, among, equal, find

MOST = 1000
"""Of each list that many rows are enough for a program; a person gets fewer."""
# By the questions, which are few: a mission may have a million other jobs.
_ASKED = Condition("id IN (SELECT job_id FROM turns WHERE mission_id = :mission_id)")
_REFUSED_FOR_A_LIMIT = Condition(
    "error LIKE :refused AND reason IS NOT NULL", {"refused": f'%"error_code":"{ErrorCode.LIMIT_REACHED}"%'}
)
_IS_APPLIED = Condition("state = 'applied' AND undoes IS NULL AND staged IS NULL")
_IS_INVALID = Condition("errors IS NOT NULL")
# A turn that verified said whether it is so, not what was found.
_HAS_SAID = Condition("result IS NOT NULL AND params NOT LIKE :verifies", {"verifies": '%"verifies":%'})
_TURN = ("number", "turn", "job_id", "action", "errors", "input_tokens", "output_tokens", "latency")
_TURNS = Columns("turns", _TURN)
_CHANGE = Sql(
    "SELECT path, sha256_before, sha256_after, size_bytes, job_id, intended_at FROM changes WHERE id = :change",
    change=int,
)
T = TypeVar("T")


def find_facts(
    tx: Tx, mission_id: int, *, most: int = MOST, most_held: int | None = None, acting: Sequence[str] = (),
    most_counted: int | None = None,
) -> Facts:  # fmt: skip
    """Facts that a report tells of the mission, at most `most` rows of each list. Raises `NOT_FOUND`.

    `acting` are the kinds whose jobs are listed where they succeeded. Of a mission that takes more than `most_counted`
    ids, jobs that have ended are counted and listed among so many of the newest.
    """
    mission = Mission.read(find_mission(tx, mission_id))
    of_mission = equal("mission_id", mission_id)
    files, undone = _files(tx, mission_id, most)
    done, done_among = _done(tx, mission_id, most_counted)
    return Facts(
        mission=mission,
        done=done,
        done_among=done_among,
        turns=_turns(tx, most, of_mission),
        invalid_replies=_turns(tx, most, of_mission, _IS_INVALID),
        files=files,
        undone=undone,
        held=_jobs(tx, mission_id, most_held or most, (State.HELD,)),
        failures=_jobs(tx, mission_id, most, (State.FAILED, State.REJECTED), IS_NO_TURN, newest=most_counted),
        acted=_jobs(tx, mission_id, most, (State.SUCCEEDED,), among("kind", acting)) if acting else Excerpt(),
        limits=_limits(tx, mission_id, mission.outcome or "", most, most_counted),
        said=_said(tx, mission_id),
    )  # fmt: skip


def _done(tx: Tx, mission_id: int, newest: int | None) -> tuple[dict[str, int], int | None]:
    """Number of jobs of each kind that succeeded, and of the newest jobs that were counted; None for all."""
    found = find_where(tx, mission_id, (State.SUCCEEDED,), newest=newest)
    then = "GROUP BY kind ORDER BY kind"
    rows = find(tx, "SELECT kind, count(*) FROM jobs", *found.conditions, IS_NO_TURN, then=then)
    return {str(kind): int(count) for kind, count in rows}, newest if found.is_cut else None


def _jobs(
    tx: Tx, mission_id: int, most: int, states: Sequence[State], *where: Condition, newest: int | None = None
) -> Excerpt[JobFact]:
    found = find_where(tx, mission_id, states, newest=newest)
    if not found.count:
        return Excerpt()
    those = (*found.conditions, *where)
    listed = JOB.count(tx, *those)
    rows = read_jobs(tx, excerpt(tx, JOB, those, listed, most))
    return Excerpt(rows, found.count if found.is_cut else listed)


def _turns(tx: Tx, most: int, *where: Condition) -> Excerpt[TurnFact]:
    total = _TURNS.count(tx, *where)
    return Excerpt([_turn(row) for row in excerpt(tx, _TURNS, where, total, most, order="number")], total)


def _turn(row: Row) -> TurnFact:
    turn = dict(zip(_TURN, row, strict=True))
    errors = turn.pop("errors")
    return TurnFact(**turn, errors=None if errors is None else json.loads(errors))


def _files(tx: Tx, mission_id: int, most: int) -> tuple[Excerpt[FileFact], Excerpt[UndoneFact]]:
    """Each file that was changed, from its first change to its last; and each that was taken back, with the job."""
    of_mission = (equal("mission_id", mission_id), _IS_APPLIED)
    by = timeline_of(tx, mission_id).undone_by if has_undone(tx, mission_id) else {}
    spans: dict[str, tuple[int, int, int]] = {}
    undone: dict[str, tuple[int, int]] = {}
    for change, file in find(tx, "SELECT id, file FROM changes", *of_mission, then="ORDER BY id"):
        if change in by:
            undone[file] = (change, by[change].job_id)
        else:
            first, _, times = spans.get(file, (change, change, 0))
            spans[file] = (first, change, times + 1)
    written = [_file(tx, *span) for span in _ends([*spans.values()], most)]
    gone = [
        UndoneFact(path=_file(tx, change, change, 1).path, job_id=job)
        for change, job in _ends([*undone.values()], most)
    ]
    return Excerpt(written, len(spans)), Excerpt(gone, len(undone))


def _ends(items: Sequence[T], most: int) -> list[T]:
    """The first and the last of many."""
    last = most // 2
    return [*items] if len(items) <= most else [*items[: most - last], *items[len(items) - last :]]


def _file(tx: Tx, first: int, last: int, times: int) -> FileFact:
    """A file from its first change to its last."""
    before = tx.row(_CHANGE, change=first)
    left = tx.row(_CHANGE, change=last)
    assert before is not None
    assert left is not None
    path, _, after, size, job_id, at = left
    return FileFact(
        path=path,
        created=before[1] is None,
        changes=times,
        size_bytes=size,
        sha256=after,
        job_id=job_id,
        changed_at=iso(at),
    )


def _limits(tx: Tx, mission_id: int, outcome: str, most: int, newest: int | None) -> list[str]:
    """Limits that made a turn the last or ended the mission, then why jobs were refused for one."""
    last = (equal("mission_id", mission_id), Condition("last_turn IS NOT NULL"))
    in_order = "GROUP BY last_turn ORDER BY min(number)"
    found = [str(row[0]) for row in find(tx, "SELECT last_turn FROM turns", *last, then=in_order)]
    if outcome.startswith("limit:"):
        found.append(outcome.removeprefix("limit:"))
    rejected = find_where(tx, mission_id, (State.REJECTED,), newest=newest)
    if not rejected.count:
        return [*dict.fromkeys(found)]
    reasons = find(
        tx,
        "SELECT reason FROM jobs",
        *rejected.conditions,
        _REFUSED_FOR_A_LIMIT,
        then="GROUP BY reason ORDER BY min(id) LIMIT :most",
        most=most,
    )
    return list(dict.fromkeys([*found, *(str(row[0]) for row in reasons)]))


def _said(tx: Tx, mission_id: int) -> JsonObject:
    """The newest reply that could be read, as the result of its turn."""
    where = (equal("mission_id", mission_id), Condition(f"state = '{State.SUCCEEDED}'"), _ASKED, _HAS_SAID)
    found = find(tx, "SELECT result FROM job_history", *where, then="ORDER BY id DESC LIMIT 1")
    said: JsonObject = json.loads(found[0][0]) if found else {}
    return said
