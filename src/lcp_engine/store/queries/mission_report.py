"""Sum the history of a mission up in a few statements, however many jobs and turns it has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, TextClause, bindparam, func, or_, select

from lcp_engine.clock import iso
from lcp_engine.core.job_states import State
from lcp_engine.errors import ErrorCode
from lcp_engine.store.changes import has_undone, timeline_of
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.large_results import RESULT
from lcp_engine.store.queries.excerpt import JOB, excerpt, read_jobs
from lcp_engine.store.queries.history import find_mission, find_where
from lcp_engine.store.queries.mission_facts import Excerpt, Facts, FileFact, JobFact, TurnFact, UndoneFact
from lcp_engine.store.queries.records import Mission
from lcp_engine.store.schema import changes, jobs, turns

MOST = 1000
"""Of each list that many rows are enough for a program; a person gets fewer."""
_TURN_KIND = "agent_plan"
_REFUSED_FOR_A_LIMIT = f'%"error_code":"{ErrorCode.LIMIT_REACHED}"%'
_TURN = ("number", "turn", "job_id", "action", "errors", "input_tokens", "output_tokens", "latency")
_CHANGE = Statement(
    select(
        changes.c.path,
        changes.c.sha256_before,
        changes.c.sha256_after,
        changes.c.size_bytes,
        changes.c.job_id,
        changes.c.intended_at,
    ).where(changes.c.id == bindparam("change"))
)
T = TypeVar("T")


def find_facts(tx: Tx, mission_id: int, *, most: int = MOST, most_held: int | None = None) -> Facts:
    """What a report says of the mission, at most `most` rows of each list. Raises `NOT_FOUND`."""
    mission = Mission.read(find_mission(tx, mission_id))
    of_mission = turns.c.mission_id == mission_id
    files, undone = _files(tx, mission_id, most)
    return Facts(
        mission=mission,
        done=_done(tx, mission_id),
        turns=_turns(tx, most, of_mission),
        invalid_replies=_turns(tx, most, of_mission, turns.c.errors.is_not(None)),
        files=files,
        undone=undone,
        held=_jobs(tx, mission_id, most_held or most, (State.HELD,)),
        failures=_jobs(tx, mission_id, most, (State.FAILED, State.REJECTED), jobs.c.kind != _TURN_KIND),
        limits=_limits(tx, mission_id, mission.outcome or "", most),
        said=_said(tx, mission_id),
    )  # fmt: skip


def _done(tx: Tx, mission_id: int) -> dict[str, int]:
    """How many jobs of each kind succeeded."""
    counted = select(jobs.c.kind, func.count()).where(
        *find_where(tx, mission_id, (State.SUCCEEDED,)).clauses, jobs.c.kind != _TURN_KIND
    )
    return {
        str(kind): int(count) for kind, count in tx.query(counted.group_by(jobs.c.kind).order_by(jobs.c.kind))
    }


def _jobs(
    tx: Tx, mission_id: int, most: int, states: Sequence[State], *where: ColumnElement[bool]
) -> Excerpt[JobFact]:
    found = find_where(tx, mission_id, states)
    if not found.count:
        return Excerpt()
    those: list[ColumnElement[bool] | TextClause] = [*found.clauses, *where]
    total = int(tx.query(select(func.count()).select_from(jobs).where(*those))[0][0])
    return Excerpt(read_jobs(tx, excerpt(tx, select(*JOB).where(*those), jobs.c.id, total, most)), total)


def _turns(tx: Tx, most: int, *where: ColumnElement[bool]) -> Excerpt[TurnFact]:
    total = int(tx.query(select(func.count()).select_from(turns).where(*where))[0][0])
    clause = select(*(turns.c[name] for name in _TURN)).where(*where)
    return Excerpt([_turn(row) for row in excerpt(tx, clause, turns.c.number, total, most)], total)


def _turn(row: Row) -> TurnFact:
    turn = dict(zip(_TURN, row, strict=True))
    errors = turn.pop("errors")
    return TurnFact(**turn, errors=None if errors is None else json.loads(errors))


def _files(tx: Tx, mission_id: int, most: int) -> tuple[Excerpt[FileFact], Excerpt[UndoneFact]]:
    """Each file that was changed, from its first change to its last; and each that was taken back, with the job."""
    of_mission = select(changes.c.id, changes.c.file).where(
        changes.c.mission_id == mission_id, changes.c.state == "applied", changes.c.undoes.is_(None)
    )
    by = timeline_of(tx, mission_id).undone_by if has_undone(tx, mission_id) else {}
    spans: dict[str, tuple[int, int, int]] = {}
    undone: dict[str, tuple[int, int]] = {}
    for change, file in tx.query(of_mission.order_by(changes.c.id)):
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


def _limits(tx: Tx, mission_id: int, outcome: str, most: int) -> list[str]:
    """Limits that made a turn the last or ended the mission, then why jobs were refused for one."""
    of_turns = select(turns.c.last_turn).where(
        turns.c.mission_id == mission_id, turns.c.last_turn.is_not(None)
    )
    found = [
        str(row[0])
        for row in tx.query(of_turns.group_by(turns.c.last_turn).order_by(func.min(turns.c.number)))
    ]
    if outcome.startswith("limit:"):
        found.append(outcome.removeprefix("limit:"))
    rejected = find_where(tx, mission_id, (State.REJECTED,))
    if not rejected.count:
        return [*dict.fromkeys(found)]
    refused = select(jobs.c.reason).where(
        *rejected.clauses,
        jobs.c.error.like(_REFUSED_FOR_A_LIMIT),
        jobs.c.reason.is_not(None),
    )
    reasons = tx.query(refused.group_by(jobs.c.reason).order_by(func.min(jobs.c.id)).limit(most))
    return list(dict.fromkeys([*found, *(str(row[0]) for row in reasons)]))


def _said(tx: Tx, mission_id: int) -> JsonObject:
    """The newest reply that could be read, as the result of its turn."""
    result = select(RESULT).where(
        *find_where(tx, mission_id, (State.SUCCEEDED,)).clauses,
        jobs.c.kind == _TURN_KIND,
        or_(jobs.c.result.is_not(None), jobs.c.result_sha256.is_not(None)),
        # A turn that verified said whether it is so, not what was found.
        jobs.c.params.not_like('%"verifies":%'),
    )
    found = tx.query(result.order_by(jobs.c.id.desc()).limit(1))
    said: JsonObject = json.loads(found[0][0]) if found else {}
    return said
