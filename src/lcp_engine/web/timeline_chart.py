"""A chart of when jobs waited and ran, on one axis with long idle times shortened. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lcp_engine.api.pages import JsonObject
from lcp_engine.core.job_states import SETTLED, TRANSITIONS, State
from lcp_engine.core.summaries import duration

WIDTH = 1000.0
"""The width of the chart, in its own units."""
THINNEST = 3.0
"""The smallest width of a segment, so that it stays visible."""
TICKS = 5
"""Marks of the axis, the first at its start."""
MOMENTS = 60
_IDLE_SHARE = 0.2
_TARGETS: Mapping[str, State] = {transition.event: transition.target for transition in TRANSITIONS}


@dataclass(frozen=True)
class Segment:
    """A period in one state. The `state` of a run is the state that it led to."""

    state: str
    x: float
    width: float
    seconds: float
    is_run: bool


@dataclass(frozen=True)
class Bar:
    """The line of one job."""

    job: JsonObject
    segments: Sequence[Segment]

    @property
    def waited(self) -> float:
        return sum(part.seconds for part in self.segments if not part.is_run)

    @property
    def held(self) -> float:
        """Seconds that it waited for a person."""
        return sum(part.seconds for part in self.segments if part.state == State.HELD and not part.is_run)

    @property
    def ran(self) -> float:
        return sum(part.seconds for part in self.segments if part.is_run)


@dataclass(frozen=True)
class Cut:
    """A shortened idle period."""

    x: float
    width: float
    seconds: float


@dataclass(frozen=True)
class Timeline:
    """The bars of all jobs; the axis covers `seconds`, and `ticks` are seconds from its start, at equal distances."""

    bars: Sequence[Bar]
    cuts: Sequence[Cut]
    seconds: float
    ticks: Sequence[float]
    moments: Sequence[float] = field(default=(), compare=False)
    """Seconds from the start at `MOMENTS` equal distances, for a line under the pointer."""

    @property
    def labels(self) -> list[str]:
        """The ticks in words; one that would read like an earlier one says how much later it is."""
        labels, told, since = list[str](), "0", 0.0
        for tick in self.ticks:
            words = duration(tick) if tick else "0"
            if words == told and tick:
                words = f"+{duration(tick - since)}"
            else:
                told, since = words, tick
            labels.append(words)
        return labels


@dataclass(frozen=True)
class _Span:
    state: State
    began: float
    ended: float
    leads_to: State

    @property
    def is_run(self) -> bool:
        return self.state is State.RUNNING


def draw(jobs: Sequence[JsonObject], state_changes: Iterable[JsonObject], now: datetime) -> Timeline:
    """The timeline of `jobs` from their state changes; a job that has not ended lasts until `now`."""
    spans = _spans(state_changes, now.timestamp())
    axis = _Axis([span for of_job in spans.values() for span in of_job])
    bars = [Bar(job, [axis.place(span) for span in spans.get(job["id"], [])]) for job in jobs]
    ticks = [axis.seconds_at(WIDTH * number / TICKS) for number in range(TICKS)]
    moments = [axis.seconds_at(WIDTH * (number + 0.5) / MOMENTS) for number in range(MOMENTS)]
    return Timeline(bars, axis.cuts, axis.seconds, ticks, moments)


def _spans(state_changes: Iterable[JsonObject], now: float) -> dict[object, list[_Span]]:
    changes: dict[object, list[tuple[float, State]]] = {}
    for change in state_changes:
        at = datetime.fromisoformat(str(change["at"])).timestamp()
        changes.setdefault(change["job_id"], []).append((at, _TARGETS[str(change["event"])]))
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
    """Maps times to positions. An idle period is at most a fifth as long as all busy time."""

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

    def seconds_at(self, x: float) -> float:
        """The time at a position, in seconds from the start."""
        if len(self._times) < 2:
            return 0.0
        at = min(bisect_right(self._places, x), len(self._places) - 1)
        left, right = self._places[at - 1], self._places[at]
        began, ended = self._times[at - 1], self._times[at]
        share = (x - left) / (right - left) if right > left else 0.0
        return began + (ended - began) * min(share, 1.0) - self._times[0]

    def _place(self, time: float) -> float:
        return self._places[bisect_right(self._times, time) - 1]

    def _busy(self, runs: Sequence[_Span]) -> list[bool]:
        """True for each interval of the axis in which any job runs."""
        steps = dict.fromkeys(self._times, 0)
        for run in runs:
            steps[run.began] += 1
            steps[run.ended] -= 1
        running, busy = 0, []
        for time in self._times[:-1]:
            running += steps[time]
            busy.append(running > 0)
        return busy
