"""Do again what a history tells, event by event.

The history is the schedule: leases, replies, ends of attempts and decisions of people are taken from it in its order,
and everything that follows from them (new jobs, turns, holds, the mission's end) is left to the engine of today.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lcp_engine.errors import LcpError
from lcp_engine.replay import attempts, missions, people, turns
from lcp_engine.replay.scratch import HistoryClock, Scratch, Strayed
from lcp_engine.store.queries.archive import PastEvent

_ACTS: Mapping[str, Callable[[Scratch, PastEvent], None]] = {
    **missions.ACTS,
    **turns.ACTS,
    **attempts.ACTS,
    **people.ACTS,
}
"""What is done for an event; the others follow from these."""


def reenact(scratch: Scratch, clock: HistoryClock) -> tuple[PastEvent, str] | None:
    """Do everything; the event that could not be done and why, where the mission took another way."""
    events = scratch.past.events
    clock.now = events[0].at
    missions.launch(scratch)
    for event in events:
        clock.now = event.at
        act = _ACTS.get(event.event)
        if act is None:
            continue
        try:
            act(scratch, event)
        except (Strayed, LcpError) as refused:
            return event, str(refused)
    return None
