from __future__ import annotations

import pytest
from tests.attack.clients import attack_door
from tests.conftest import TURN

pytestmark = pytest.mark.proof


def test_no_message_of_another_client_decides_launches_or_tells_anything() -> None:
    found = attack_door(1, TURN)
    assert found.faults == []
    assert found.control, "the named client could not approve either"
    assert found.answers.total() > 30
