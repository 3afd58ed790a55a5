from __future__ import annotations

import pytest
from tests.attack.health import PATHS, attack_health
from tests.conftest import TURN

pytestmark = pytest.mark.proof


def test_nothing_is_told_to_others_and_slow_ones_keep_nobody_out() -> None:
    found = attack_health(1, TURN)
    assert found.faults == []
    assert found.controls == len(PATHS)
    assert found.answers["403"] > 30
