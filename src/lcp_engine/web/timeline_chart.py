"""Draw when jobs waited and ran: their states as segments on one axis, long idle times shortened (pure)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lcp_engine.core.job_states import SETTLED, TRANSITIONS, State
from lcp_engine.store.db.json_text import JsonObject

WIDTH = 1000.0
"""Units from the left to the right of the drawing."""
THINNEST = 3.0
"""A segment that would be thinner is drawn so wide, or nobody would see it."""
_IDLE_SHARE = 0.2
_TARGETS: Mapping[str, State] = {transition.event: transition.target for transition in TRANSITIONS}


@dataclass(frozen=True)
class Segment:
    """A time in one state; `state` of a run is what it led to."""

    state: str
    x: float
    width: float
    seconds: float
    is_run: bool


@dataclass(frozen=True)
class Bar:
    """A job's line."""

    job: JsonObject
    segments: Sequence[Segment]

    @property
    def waited(self) -> float:
        return sum(part.seconds for part in self.segments if not part.is_run)

    @property
    def ran(self) -> float:
        return sum(part.seconds for part in self.segments if part.is_run)


@dataclass(frozen=True)
class Cut:
    """A place on the axis where time is left out."""

    x: float
    width: float
    seconds: float


@dataclass(frozen=True)
class Timeline:
    """Bars on one axis of `seconds`."""

    bars: Sequence[Bar]
    cuts: Sequence[Cut]
    seconds: float


@dataclass(frozen=True)
class _Span:
    state: State
    began: float
    ended: float
    leads_to: State

    @property
    def is_run(self) -> bool:
        return self.state is State.RUNNING


def draw(jobs: Sequence[JsonObject], moves: Iterable[JsonObject], now: datetime) -> Timeline:
    """The timeline of `jobs` out of their changes of state; what has not ended lasts until `now`."""
    spans = _spans(moves, now.timestamp())
    axis = _Axis([span for of_job in spans.values() for span in of_job])
    bars = [Bar(job, [axis.place(span) for span in spans.get(job["id"], [])]) for job in jobs]
    return Timeline(bars, axis.cuts, axis.seconds)


def _spans(moves: Iterable[JsonObject], now: float) -> dict[object, list[_Span]]:
    changes: dict[object, list[tuple[float, State]]] = {}
    for move in moves:
        at = datetime.fromisoformat(str(move["at"])).timestamp()
        changes.setdefault(move["job_id"], []).append((at, _TARGETS[str(move["event"])]))
    spans: dict[object, list[_Span]] = {}
    for job_id, states in changes.items():
        after = [*states[1:], (max(now, states[-1][0]), states[-1][1])]
        spans[job_id] = [
            _Span(state, at, until, then)
            for (at, state), (until, then) in zip(states, after, strict=True)
            if state not in SETTLED
        ]
    return spans


class _Axis:
    """Maps times to places. An idle time counts for a fifth of all busy time at most."""

    def __init__(self, spans: Sequence[_Span]) -> None:
        self._times = sorted({time for span in spans for time in (span.began, span.ended)})
        self.seconds = self._times[-1] - self._times[0] if self._times else 0.0
        lengths = [later - earlier for earlier, later in zip(self._times, self._times[1:], strict=False)]
        is_busy = self._busy([span for span in spans if span.is_run])
        most = _IDLE_SHARE * sum(length for length, busy in zip(lengths, is_busy, strict=True) if busy)
        shown = [
            length if busy or not most else min(length, most)
            for length, busy in zip(lengths, is_busy, strict=True)
        ]
        scale = WIDTH / (sum(shown) or 1.0)
        self._places = [0.0]
        for length in shown:
            self._places.append(self._places[-1] + length * scale)
        self.cuts = [
            Cut(self._places[index], shown[index] * scale, length)
            for index, length in enumerate(lengths)
            if shown[index] < length
        ]

    def place(self, span: _Span) -> Segment:
        left, right = self._place(span.began), self._place(span.ended)
        left = min(left, WIDTH - THINNEST)
        state = span.leads_to if span.is_run else span.state
        return Segment(
            state.value,
            round(left, 2),
            round(max(right - left, THINNEST), 2),
            span.ended - span.began,
            span.is_run,
        )

    def _place(self, time: float) -> float:
        return self._places[bisect_right(self._times, time) - 1]

    def _busy(self, runs: Sequence[_Span]) -> list[bool]:
        """For each piece of the axis whether anything runs in it."""
        steps = dict.fromkeys(self._times, 0)
        for run in runs:
            steps[run.began] += 1
            steps[run.ended] -= 1
        running, busy = 0, []
        for time in self._times[:-1]:
            running += steps[time]
            busy.append(running > 0)
        return busy
