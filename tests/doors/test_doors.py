"""What OpenAPI allows and forbids is answered as the document says; `make doors` sends far more of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.doors.__main__ import TOOL, try_api

pytestmark = pytest.mark.proof


def test_a_sample_of_requests_is_answered_as_the_document_says(tmp_path: Path) -> None:
    if not TOOL.exists():
        assert not os.environ.get("LCP_TEST_REQUIRE_DOORS"), "make .venv-doors/ready"
        pytest.skip("schemathesis is not there: make .venv-doors/ready")
    tried = try_api(f"sqlite:///{tmp_path / 'lcp.db'}", tmp_path, 160, 1, is_sample=True)
    assert [one.said for one in tried if not one.is_well] == []
    assert all(one.requests for one in tried)
