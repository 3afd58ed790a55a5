"""Tell how every job stood at a moment of its mission's history (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lcp_engine.core.job_states import APPROVE, APPROVE_BLOCKED, RETRY, RETRY_HELD, START, TRANSITIONS, State
from lcp_engine.store.queries.archive import Archive, PastEvent

_TRANSITIONS = {transition.event: transition for transition in TRANSITIONS}
_APPROVALS = (APPROVE.event, APPROVE_BLOCKED.event)
_RETRIES = (RETRY.event, RETRY_HELD.event)


@dataclass(frozen=True)
class Life:
    """A job up to the moment of the copy: its events that are kept, and how often it was started."""

    trail: tuple[PastEvent, ...]

    @property
    def last(self) -> PastEvent:
        """The event that brought it where it stands."""
        return next(event for event in reversed(self.trail) if event.event in _TRANSITIONS)

    @property
    def state(self) -> State:
        return _TRANSITIONS[self.last.event].target

    @property
    def starts(self) -> int:
        return sum(event.event == START.event for event in self.trail)

    @property
    def approved(self) -> int:
        """The first attempt after a person approved it; 0 where nobody did."""
        starts = found = 0
        for event in self.trail:
            starts += event.event == START.event
            if event.event in _APPROVALS:
                found = starts + 1
        return found

    def since_retry(self, *names: str) -> int:
        """How many events of these names there were since a person had it tried again."""
        count = 0
        for event in self.trail:
            count = 0 if event.event in _RETRIES else count + (event.event in names)
        return count


def lives_until(past: Archive, asked: PastEvent) -> dict[int, Life]:
    """Every job that was there before the event `asked`, by its id.

    Attempts under way are left out, and so are approvals that nothing came of: they were given for the other mission.
    """
    trails: dict[int, list[PastEvent]] = defaultdict(list)
    for event in past.events:
        if event.seq < asked.seq and event.job_id is not None:
            trails[event.job_id].append(event)
    return {
        job_id: Life(tuple(_shortened(trail, is_turn=job_id == asked.job_id)))
        for job_id, trail in trails.items()
        if any(event.event in _TRANSITIONS for event in trail)
    }


def _shortened(trail: list[PastEvent], *, is_turn: bool) -> list[PastEvent]:
    names = [event.event for event in trail]
    if is_turn:
        return trail[: names.index(START.event)] if START.event in names else trail
    state = Life(tuple(trail)).state
    if state is State.RUNNING:
        trail = trail[: _last(names, (START.event,))]
        names = names[: len(trail)]
        state = Life(tuple(trail)).state
    if (state is State.QUEUED or names[-2:-1] == [APPROVE_BLOCKED.event]) and set(_APPROVALS) & set(names):
        return trail[: _last(names, _APPROVALS)]
    return trail


def _last(names: Sequence[str], wanted: tuple[str, ...]) -> int:
    return max(place for place, name in enumerate(names) if name in wanted)
