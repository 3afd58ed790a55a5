"""The scenarios that `make faults` carries out: the short ones each time, of the others some, by turns."""

from __future__ import annotations

import pytest
from tests.conftest import REQUIRED
from tests.faults.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.proof

ALL = [
    pytest.param(
        scenario, database, id=f"{scenario.name}-{database}",
        marks=() if database in scenario.short else pytest.mark.turns(15),
    )
    for scenario in SCENARIOS
    for database in scenario.databases
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "database"), ALL)
def test_what_goes_wrong_around_the_engine_loses_nothing(scenario: Scenario, database: str) -> None:
    if missing := scenario.missing(database):
        assert not (REQUIRED and "server" in missing)
        pytest.skip(missing)
    assert scenario.problems(database, seed=20) == []
