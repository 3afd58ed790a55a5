"""The short ones of the scenarios that `make faults` carries out."""

from __future__ import annotations

import pytest
from tests.conftest import REQUIRED
from tests.faults.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.proof

SHORT = [
    pytest.param(scenario, database, id=f"{scenario.name}-{database}")
    for scenario in SCENARIOS
    for database in scenario.short
]


@pytest.mark.parametrize(("scenario", "database"), SHORT)
def test_what_goes_wrong_around_the_engine_loses_nothing(scenario: Scenario, database: str) -> None:
    if missing := scenario.missing(database):
        assert not (REQUIRED and "server" in missing)
        pytest.skip(missing)
    assert scenario.problems(database, seed=20) == []
