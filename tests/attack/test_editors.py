from __future__ import annotations

import pytest
from tests.attack.editors import attack_editors
from tests.conftest import TURN

pytestmark = pytest.mark.proof


def test_no_editor_decides_for_another_one_or_brings_a_server_down() -> None:
    found = attack_editors(1, TURN)
    assert found.faults == []
    assert found.control, "the editor that waited could not approve either"
    assert found.answers.total() > 50
