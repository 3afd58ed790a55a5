"""Send a request again where that can help: bounded, with growing pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lcp_engine.planners.llm.errors import Again, Trouble
from lcp_engine.planners.llm.types import Completion


@dataclass(frozen=True)
class Pace:
    """How often and how fast; pauses in seconds.

    Pauses double from `first` to `longest` and are shortened at random, so that many callers do not come back at once.
    A server may ask for up to `longest_asked`. A model that is loading is asked every `loading` seconds.
    """

    tries: int = 4
    first: float = 0.5
    longest: float = 20.0
    longest_asked: float = 60.0
    loading: float = 3.0
    loading_total: float = 240.0


@dataclass(frozen=True)
class Times:
    """Where time and chance come from."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: random.Random = field(default_factory=random.Random)


def insist(
    send: Callable[[], Completion | Trouble], *, pace: Pace, times: Times, deadline: float
) -> Completion | Trouble:
    """The first completion, or the trouble that was left when it no longer made sense to try."""
    began = times.clock()
    tries = 0
    while True:
        outcome = send()
        if isinstance(outcome, Completion):
            return outcome
        tries += outcome.again is not Again.LOADING
        pause = _pause(outcome, tries, times.clock() - began, pace, times.random)
        if pause is None or times.clock() + pause >= deadline:
            return _after(outcome, tries)
        times.sleep(pause)


def _pause(trouble: Trouble, tries: int, waited: float, pace: Pace, chance: random.Random) -> float | None:
    """How long to wait before the next try; None where there is to be none."""
    match trouble.again:
        case Again.NEVER:
            return None
        case Again.LOADING:
            return pace.loading if waited < pace.loading_total else None
        case Again.ONCE if tries > 1:
            return None
        case Again.ONCE | Again.BACK_OFF:
            if tries >= pace.tries:
                return None
    if trouble.retry_after is not None:
        return trouble.retry_after if trouble.retry_after <= pace.longest_asked else None
    return min(pace.first * 2.0 ** (tries - 1), pace.longest) * chance.uniform(0.5, 1)


def _after(trouble: Trouble, tries: int) -> Trouble:
    """The trouble, saying how often it was met."""
    return trouble if tries < 2 else replace(trouble, message=f"{trouble.message} (after {tries} tries)")
