from __future__ import annotations

import pytest
from tests.attack.spellings import by_a_naive_worker, by_the_engine, search
from tests.conftest import TURN

from lcp_engine.sandbox.system.syscalls import has_openat2

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(not has_openat2(), reason="openat2 is the oracle"),
]


def test_what_policy_judges_is_what_the_kernel_opens() -> None:
    tried = search(by_the_engine, 1600, number=TURN % 1000)
    assert tried.faults == []
    assert min(tried.counts.values()) > 50


def test_a_worker_that_compares_texts_is_found_out() -> None:
    assert len(search(by_a_naive_worker, 300, number=1).faults) > 10
