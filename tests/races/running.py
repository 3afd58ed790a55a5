"""Repeat a job while another process changes the paths it uses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.races import swapping
from tests.races.races import CANARY, Race
from tests.ways import Way, descriptors

MOST_SECONDS = 20
"""A job that takes longer counts as hung."""
LEAKS = (CANARY, "canary.txt", "root:x:0:0")


@dataclass(frozen=True)
class Tally:
    """The outcomes of the jobs of one race, and the number of open descriptors before and after."""

    race: str
    way: str
    succeeded: int
    refused: int
    escapes: int
    before: int
    after: int

    @property
    def jobs(self) -> int:
        return self.succeeded + self.refused

    @property
    def is_well(self) -> bool:
        return self.escapes == 0 and self.after <= self.before


class Hung(Exception):
    """A job did not return."""


def run(race: Race, way: Way, goes_on: Callable[[int, int], bool]) -> Tally:
    """Race until `goes_on`, called with the numbers of succeeded and of refused jobs, returns False."""
    with tempfile.TemporaryDirectory(prefix="lcp-race-") as directory:
        place = Path(directory).resolve()
        race.prepare(place)
        outside = race.outside(place)
        with way.opened(place / "root") as do, _alarm() as wind:
            do("read_file", {"rel_path": "a.txt"})
            do("write_file", {"rel_path": "a.txt", "content": "in\n"})
            before = descriptors()
            with _swapper(place, race):
                succeeded = refused = escapes = 0
                while goes_on(succeeded, refused):
                    wind()
                    done = do(race.kind, race.params)
                    if done.result is None:
                        refused += 1
                        continue
                    succeeded += 1
                    text = json.dumps(done.result)
                    escapes += any(leak in text for leak in LEAKS)
            after = descriptors()
        escapes += race.outside(place) != outside
    return Tally(race.name, way.name, succeeded, refused, escapes, before, after)


def for_seconds(seconds: float) -> Callable[[int, int], bool]:
    """Continues for this long from the first job."""
    ends: list[float] = []

    def goes_on(succeeded: int, refused: int) -> bool:
        if not ends:
            ends.append(time.monotonic() + seconds)
        return time.monotonic() < ends[0]

    return goes_on


@contextmanager
def _swapper(place: Path, race: Race) -> Iterator[None]:
    program = [sys.executable, "-I", "-S", swapping.__file__, str(place), json.dumps(race.steps)]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield
        finally:
            other.terminate()


@contextmanager
def _alarm() -> Iterator[Callable[[], object]]:
    """A function to call before each job; raises `Hung` unless the next call comes in time."""

    def ring(signum: int, frame: object) -> None:
        raise Hung

    earlier = signal.signal(signal.SIGALRM, ring)
    try:
        yield lambda: signal.alarm(MOST_SECONDS)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
