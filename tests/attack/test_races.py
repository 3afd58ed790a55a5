"""Changing paths while a job uses them lets nothing out of the root; `make attack` tries for longer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.attack.races import RACES, READ, WRITE, Race
from tests.attack.racing import held_by_an_ordinary_user
from tests.attack.running import for_seconds, run
from tests.attack.uses import SPARE, USES
from tests.ways import CONFINED, OPENAT2, WALK, Do, Done, Params, Way

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]
SECONDS = 3
"""For all races of one way to use paths together; `make races` takes ten for each of them."""
NAIVE_LOSES = 3
"""If a trusting worker leaked in fewer races, or changed something in fewer, they would have become too easy."""


@pytest.mark.parametrize("way", [OPENAT2, WALK, CONFINED], ids=lambda way: way.name)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_nothing_escapes_and_no_descriptor_is_left(race: Race, way: Way) -> None:
    if not way.is_there:
        pytest.skip("this kernel has none")
    tally = run(race, way, for_seconds(SECONDS / len(RACES)))
    assert tally.attempts
    assert tally.leaks == tally.changes == 0
    assert tally.after <= tally.before


@pytest.mark.parametrize("number", range(len(USES)), ids=lambda number: USES[number].way.name)
def test_nothing_escapes_through_a_mission(number: int) -> None:
    use = USES[number]
    if not use.way.is_there:
        pytest.skip("this kernel has none")
    races = [race for race in RACES if use.applies_to(race)]
    for race in races:
        tally = run(race, use.way, for_seconds(SECONDS / len(races)), spare=SPARE)
        assert tally.attempts
        assert tally.is_well, race.name


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests are those of an ordinary user")
def test_nothing_escapes_from_an_ordinary_user() -> None:
    assert held_by_an_ordinary_user(0.02, USES[:1])


def test_a_worker_that_trusts_an_earlier_check_loses_races() -> None:
    """Using what `realpath` approved is common practice: it must lose, or the races prove nothing."""

    @contextmanager
    def trusting(place: Path, /, *, aliases: tuple[str, ...] = ()) -> Iterator[Do]:
        def do(kind: str, params: Params) -> Done:
            path = place / str(params["rel_path"])
            try:
                if path.resolve().is_relative_to(place) and path.is_file():
                    if kind == WRITE:
                        path.write_text(str(params["content"]))
                    return Done({"content": path.read_text()})
            except (OSError, ValueError, RuntimeError):
                pass
            return Done(code="PATH_DENIED")

        yield do

    way = Way("trusting", True, trusting)
    leaks: set[str] = set()
    changes: set[str] = set()
    for _ in range(20):
        for race in RACES:
            if race.kind in (READ, WRITE) and not race.fifos and race.name not in leaks | changes:
                tally = run(race, way, for_seconds(0.3))
                leaks |= {race.name} if tally.leaks else set()
                changes |= {race.name} if tally.changes else set()
                if min(len(leaks), len(changes)) >= NAIVE_LOSES:
                    return
    pytest.fail(f"it lost only {leaks} and {changes}")
