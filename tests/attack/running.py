"""Repeat an attempt while another process changes the paths it uses."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.attack.races import CANARY, Race
from tests.attack.swapping import swapper
from tests.processes import descriptors
from tests.ways import Way

MOST_SECONDS = 20
"""A job that takes longer counts as hung."""
LEAKS = (CANARY, "canary.txt", "root:x:0:0")


@dataclass(frozen=True)
class Tally:
    """The outcomes of the attempts of one race, and the number of open descriptors before and after.

    `leaks` are answers that tell what they must not; `changes` are paths that were changed and must not be.
    """

    race: str
    way: str
    succeeded: int
    refused: int
    leaks: int
    changes: int
    before: int
    after: int

    @property
    def attempts(self) -> int:
        return self.succeeded + self.refused

    @property
    def is_well(self) -> bool:
        return self.leaks == self.changes == 0 and self.after <= self.before


class Hung(Exception):
    """A job did not return."""


def run(race: Race, way: Way, goes_on: Callable[[int, int], bool], *, spare: int = 0) -> Tally:
    """Race until `goes_on`, called with the numbers of succeeded and of refused jobs, returns False.

    As many as `spare` descriptors more than before may be open afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="lcp-race-") as directory:
        place = Path(directory).resolve()
        race.prepare(place)
        outside = race.outside(place)
        with way.opened(place / "root") as do, alarm() as wind:
            do("read_file", {"rel_path": "a.txt"})
            do("write_file", {"rel_path": "a.txt", "content": "in\n"})
            do(race.kind, race.params)
            before = descriptors()
            with swapper(place, race.steps):
                succeeded = refused = leaks = 0
                while goes_on(succeeded, refused):
                    wind()
                    done = do(race.kind, race.params)
                    if done.result is None:
                        refused += 1
                        continue
                    succeeded += 1
                    leaks += tells_secrets(json.dumps(done.result))
            after = descriptors()
        found = race.outside(place)
        changes = sum(outside.get(path) != found.get(path) for path in {*outside, *found})
    return Tally(race.name, way.name, succeeded, refused, leaks, changes, before + spare, after)


def tells_secrets(text: str) -> bool:
    """Whether an answer contains what no answer may contain."""
    return any(leak in text for leak in LEAKS)


def for_seconds(seconds: float) -> Callable[[int, int], bool]:
    """Continues for this long from the first job."""
    ends: list[float] = []

    def goes_on(succeeded: int, refused: int) -> bool:
        if not ends:
            ends.append(time.monotonic() + seconds)
        return time.monotonic() < ends[0]

    return goes_on


@contextmanager
def alarm() -> Iterator[Callable[[], object]]:
    """A function to call before each job; raises `Hung` unless the next call comes in time."""

    def ring(signum: int, frame: object) -> None:
        raise Hung

    earlier = signal.signal(signal.SIGALRM, ring)
    try:
        yield lambda: signal.alarm(MOST_SECONDS)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
