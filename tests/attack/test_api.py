from __future__ import annotations

import pytest
from tests.attack.api import attack_api

pytestmark = pytest.mark.proof


def test_no_program_gets_further_than_its_token_and_no_broken_request_is_a_defect() -> None:
    found = attack_api(every=4)
    assert found.through == []
    assert found.changed == []
    assert found.failed == []
    assert found.is_well, "the controls did not get through either"
    assert found.statuses.total() > 100
