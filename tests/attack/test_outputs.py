from __future__ import annotations

import pytest
from tests.attack.outputs import compare, sample
from tests.conftest import TURN

pytestmark = pytest.mark.proof


def test_nothing_that_differs_looks_alike_where_people_decide() -> None:
    found = compare(sample(14, number=TURN % 1000))
    assert found.blind == []
    assert found.alike == []
    assert found.raw == []


def test_what_is_printed_as_it_is_looks_alike() -> None:
    codes = sample(14, number=1)
    assert len(compare(codes, {"as it is": str}).alike) >= len(codes)
