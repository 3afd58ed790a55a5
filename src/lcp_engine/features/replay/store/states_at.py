"""The state of each job at an event of its mission's history. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lcp_engine.core.job_states import APPROVE, APPROVE_BLOCKED, RETRY, RETRY_HELD, START, TRANSITIONS, State
from lcp_engine.features.plans.store.stated_plans import RESOLVED
from lcp_engine.features.replay.store.archive import Archive, PastEvent

_TRANSITIONS = {transition.event: transition for transition in TRANSITIONS}
_APPROVALS = (APPROVE.event, APPROVE_BLOCKED.event)
_RETRIES = (RETRY.event, RETRY_HELD.event)


@dataclass(frozen=True)
class JobHistory:
    """The events of a job up to a point in its mission's history."""

    events: tuple[PastEvent, ...]

    @property
    def last(self) -> PastEvent:
        """The last change of state."""
        return next(event for event in reversed(self.events) if event.event in _TRANSITIONS)

    @property
    def state(self) -> State:
        return _TRANSITIONS[self.last.event].target

    @property
    def starts(self) -> int:
        return sum(event.event == START.event for event in self.events)

    @property
    def approved(self) -> int:
        """The first attempt after a person's approval; 0 without one."""
        starts = found = 0
        for event in self.events:
            starts += event.event == START.event
            if event.event in _APPROVALS:
                found = starts + 1
        return found

    def since_retry(self, *names: str) -> int:
        """Number of events of these names since the last retry by a person."""
        count = 0
        for event in self.events:
            count = 0 if event.event in _RETRIES else count + (event.event in names)
        return count


def states_before(past: Archive, seq: int) -> dict[int, State]:
    """The state of each job before event `seq`, by job id."""
    return {
        event.job_id: _TRANSITIONS[event.event].target
        for event in past.events
        if event.seq < seq and event.job_id is not None and event.event in _TRANSITIONS
    }


def jobs_before(past: Archive, point: PastEvent) -> dict[int, JobHistory]:
    """The history of each job before `point`, the event of a question or of a step, by job id, as a fork takes it over.

    Unfinished attempts are left out, and so are approvals that had not led to an attempt.
    """
    events_of: dict[int, list[PastEvent]] = defaultdict(list)
    for event in past.events:
        if event.seq < point.seq and event.job_id is not None:
            events_of[event.job_id].append(event)
    return {
        job_id: JobHistory(tuple(_kept(events, is_turn=job_id == point.job_id)))
        for job_id, events in events_of.items()
        if any(event.event in _TRANSITIONS for event in events)
    }


def _kept(events: list[PastEvent], *, is_turn: bool) -> list[PastEvent]:
    names = [event.event for event in events]
    if is_turn:
        if START.event not in names:
            return events
        # What its references stand for is asked about, whoever asks.
        begun = names.index(START.event)
        return [*events[:begun], *(event for event in events[begun:] if event.event == RESOLVED)]
    state = JobHistory(tuple(events)).state
    if state is State.RUNNING:
        events = events[: _last(names, (START.event,))]
        names = names[: len(events)]
        state = JobHistory(tuple(events)).state
    if (state is State.QUEUED or names[-2:-1] == [APPROVE_BLOCKED.event]) and set(_APPROVALS) & set(names):
        return events[: _last(names, _APPROVALS)]
    return events


def _last(names: Sequence[str], wanted: tuple[str, ...]) -> int:
    return max(place for place, name in enumerate(names) if name in wanted)
