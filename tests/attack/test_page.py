from __future__ import annotations

import pytest
from tests.attack.page import attack_page

pytestmark = pytest.mark.proof


def test_no_forged_request_gets_through_and_no_malformed_one_is_a_defect() -> None:
    found = attack_page(every=5)
    assert found.through == []
    assert found.changed == []
    assert found.failed == []
    assert found.is_well, "the controls did not get through either"
    assert found.statuses.total() > 500
