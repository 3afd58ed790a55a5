"""Changing paths while a job uses them lets nothing out of the root; `make races` tries for longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.races.races import RACES, READ, Race
from tests.races.running import for_seconds, run
from tests.ways import CONFINED, OPENAT2, WALK, Do, Done, Params, Way

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]
NAIVE_LOSES = 4
"""If a trusting worker lost fewer races, the races would have become too easy."""


@pytest.mark.parametrize("way", [OPENAT2, WALK, CONFINED], ids=lambda way: way.name)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_nothing_escapes_and_no_descriptor_is_left(race: Race, way: Way) -> None:
    if not way.is_there:
        pytest.skip("this kernel has none")
    tally = run(race, way, for_seconds(0.2))
    assert tally.jobs
    assert tally.escapes == 0
    assert tally.after <= tally.before


def test_a_worker_that_trusts_an_earlier_check_loses_races() -> None:
    """Reading what `realpath` approved is common practice: it must lose, or the races prove nothing."""

    @contextmanager
    def trusting(place: Path, /, *, aliases: tuple[str, ...] = ()) -> Iterator[Do]:
        def do(kind: str, params: Params) -> Done:
            path = place / str(params["rel_path"])
            try:
                if path.resolve().is_relative_to(place) and path.is_file():
                    return Done({"content": path.read_text()})
            except (OSError, ValueError, RuntimeError):
                pass
            return Done(code="PATH_DENIED")

        yield do

    way = Way("trusting", True, trusting)
    lost: set[str] = set()
    for _ in range(20):
        for race in RACES:
            if race.kind == READ and not race.fifos and race.name not in lost:
                if run(race, way, for_seconds(0.5)).escapes:
                    lost.add(race.name)
                if len(lost) >= NAIVE_LOSES:
                    return
    pytest.fail(f"it lost only {lost}")
