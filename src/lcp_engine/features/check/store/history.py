"""Compare missions and jobs with their events (R16, R17, R19)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from lcp_engine.core.job_states import (
    APPROVE,
    APPROVE_BLOCKED,
    BACK_OFF,
    CREATIONS,
    DELEGATE,
    FAIL,
    HOLD_AGAIN,
    SETTLED,
    START,
    STOP_AT_LIMIT,
    SUCCEED,
    TRANSITIONS,
    State,
)
from lcp_engine.store.db.transaction import Row, Tx

CHUNK = 20_000
SEGMENT = 4096

_CODES = {transition.event: code for code, transition in enumerate(TRANSITIONS, start=1)}
_NAMES = {code: event for event, code in _CODES.items()}
_TARGETS = {_CODES[transition.event]: transition.target for transition in TRANSITIONS}
_START = _CODES[START.event]
_APPROVALS = frozenset(_CODES[one.event] for one in (APPROVE, APPROVE_BLOCKED))
_ENDS = {
    _CODES[one.event]: one.event for one in (SUCCEED, FAIL, BACK_OFF, HOLD_AGAIN, DELEGATE, STOP_AT_LIMIT)
}
"""Events that leave the row of an attempt, always."""
_FOLLOWS = frozenset(
    {(0, _CODES[one.event]) for one in CREATIONS.values()}
    | {
        (_CODES[before.event], _CODES[after.event])
        for before, after in product(TRANSITIONS, repeat=2)
        if before.target in after.sources
    }
)
_CODE_BITS, _START_BITS = 6, 16
_SEQ_SHIFT = _CODE_BITS + _START_BITS
_ONE_START = 1 << _CODE_BITS
_CODE_MASK, _START_MASK = _ONE_START - 1, (1 << _START_BITS) - 1


class _Told(NamedTuple):
    """Facts that the events tell of a job: the number and the code of the last one, and how often it was started."""

    seq: int
    code: int
    starts: int


class _Standing(NamedTuple):
    """A job as its row has it; `outcome` is that of its last attempt, None if that has no row."""

    id: int
    mission_id: int
    state: str
    settled_seq: int | None
    attempt: int
    approved: int
    outcome: str | None


class _Stories:
    """Facts that the events tell of every job, in eight bytes a job, so that any history fits into memory."""

    def __init__(self) -> None:
        self._segments: dict[int, array[int]] = {}
        self.approved: dict[int, int] = {}
        """The first attempt after a person approved the job."""

    def segment(self, job_id: int) -> array[int]:
        key = job_id // SEGMENT
        found = self._segments.get(key)
        if found is None:
            found = self._segments[key] = array("q", bytes(8 * SEGMENT))
        return found

    def take(self, job_id: int) -> _Told:
        """Remove and return what the events say of a job."""
        segment, place = self.segment(job_id), job_id % SEGMENT
        packed, segment[place] = segment[place], 0
        return _Told(packed >> _SEQ_SHIFT, packed & _CODE_MASK, packed >> _CODE_BITS & _START_MASK)

    def left(self) -> Iterator[int]:
        """The jobs that were not taken."""
        for key, segment in sorted(self._segments.items()):
            yield from (key * SEGMENT + place for place, packed in enumerate(segment) if packed)


def history_faults(tx: Tx) -> Iterator[str]:
    """Faults of event numbers, and with jobs that are not where their events have led them."""
    kept = tx.query_plain("SELECT id, events FROM missions WHERE pruned_at IS NULL")
    counted: dict[int, int] = {row[0]: row[1] for row in kept}
    stories = _Stories()
    yield from _read_events(tx, counted, stories)
    for mission, count in sorted(counted.items()):
        if count:
            yield f"mission {mission}: it counts {count} events; there are 0"
    yield from _compare_jobs(tx, stories)
    for job in stories.left():
        yield f"job {job}: events tell of it; it is not there"


def _read_events(tx: Tx, counted: dict[int, int], stories: _Stories) -> Iterator[str]:
    """Missions whose events were found are taken out of `counted`."""
    mission = seq = last = 0
    is_told = False
    for mission_id, number, job_id, event in _events(tx):
        if mission_id != mission:
            yield from _gaps(counted, mission, seq, last)
            mission, seq, last, is_told = mission_id, 0, 0, mission_id in counted
        seq, last = seq + 1, number
        if job_id is None or not is_told:
            continue
        code = _CODES.get(event)
        if code is None:
            continue
        segment, place = stories.segment(job_id), job_id % SEGMENT
        packed = segment[place]
        if (packed & _CODE_MASK, code) not in _FOLLOWS:
            yield _stray(job_id, number, event, packed & _CODE_MASK)
        starts = packed & (_START_MASK << _CODE_BITS)
        if code == _START:
            starts += _ONE_START
        elif code in _APPROVALS:
            stories.approved[job_id] = (starts >> _CODE_BITS) + 1
        segment[place] = number << _SEQ_SHIFT | starts | code
    yield from _gaps(counted, mission, seq, last)


def _events(tx: Tx) -> Iterator[Row]:
    mission, seq = -1, -1
    while True:
        rows = tx.query_plain(
            "SELECT mission_id, seq, job_id, event FROM events "  # numbers of our own
            f"WHERE (mission_id, seq) > ({mission}, {seq}) ORDER BY mission_id, seq LIMIT {CHUNK}"
        )
        yield from rows
        if len(rows) < CHUNK:
            return
        mission, seq = rows[-1][0], rows[-1][1]


def _gaps(counted: dict[int, int], mission: int, found: int, last: int) -> Iterator[str]:
    """Events are numbered from 1 without gaps, and the mission counts them (R19)."""
    count = counted.pop(mission, None)
    if count is None:
        return
    if last != found:
        yield f"mission {mission}: {found} events should be numbered 1 to {found}; the last one is {last}"
    if count != found:
        yield f"mission {mission}: it counts {count} events; there are {found}"


def _stray(job: int, seq: int, event: str, before: int) -> str:
    was = "is its first" if not before else f"follows {_NAMES[before]!r}"
    return f"job {job}: event {seq} ({event!r}) {was}, which no transition does"


def _compare_jobs(tx: Tx, stories: _Stories) -> Iterator[str]:
    pruned = {row[0] for row in tx.query_plain("SELECT id FROM missions WHERE pruned_at IS NOT NULL")}
    after = 0
    while True:
        rows = tx.query_plain(
            "SELECT j.id, j.mission_id, j.state, j.settled_seq, j.attempt, j.approved, a.outcome "
            "FROM jobs j LEFT JOIN attempts a ON a.job_id = j.id AND a.attempt = j.attempt "
            f"WHERE j.id > {after} ORDER BY j.id LIMIT {CHUNK}"
        )
        for row in rows:
            job = _Standing(*row)
            told = stories.take(job.id)
            if job.mission_id not in pruned:
                yield from _compare(job, told, stories.approved.get(job.id, 0))
        if len(rows) < CHUNK:
            return
        after = rows[-1][0]


def _compare(row: _Standing, told: _Told, told_approved: int) -> Iterator[str]:
    job, _, state, settled_seq, attempt, approved, outcome = row
    seq, code, starts = told
    if not code:
        yield f"job {job}: it is {state}; no event tells of it"
        return
    target = _TARGETS[code]
    if state != target:
        yield f"job {job}: it is {state}; its last event, {seq} ({_NAMES[code]!r}), made it {target}"
    elif settled_seq != (seq if State(state) in SETTLED else None):
        settled = f"event {seq} settled it" if State(state) in SETTLED else "it is not settled"
        yield f"job {job}: {settled}; its settled_seq is {settled_seq}"
    if attempt != starts:
        yield f"job {job}: it counts {attempt} attempts; its events tell of {starts}"
    if approved != told_approved:
        yield f"job {job}: it is approved from attempt {approved} on; its events tell of {told_approved} (0: never)"
    if code in _ENDS and outcome != _ENDS[code]:
        found = "is not there" if outcome is None else f"tells {outcome!r}"
        yield f"job {job}: attempt {attempt} ended with {_ENDS[code]!r}; its row {found}"
