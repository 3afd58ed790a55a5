"""Tell whoever watches a thread which of its jobs it is at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lcp_engine.store.row_types import JobRow


@dataclass(frozen=True)
class Shift:
    """Jobs that a thread executes together; without a watch, nothing happens to them meanwhile.

    `turns_to` a job: its time begins. False where it was given back: it is no longer this thread's to execute.
    `waits` with jobs, for a lock: until each is turned to again, it may be given back. `settles` what other jobs came
    to before: a file is about to change, and what they saw is older (R11).
    """

    turns_to: Callable[[JobRow], bool] = lambda job: True
    waits: Callable[[Iterable[JobRow]], None] = lambda jobs: None
    settles: Callable[[], None] = lambda: None


UNWATCHED = Shift()
