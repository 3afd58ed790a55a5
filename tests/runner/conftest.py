"""What tests of staged missions work with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runner.theatre import Theatre, open_theatre

from lcp_engine.sandbox.landlock import Isolation
from lcp_engine.store.maintenance.check import check_database


@pytest.fixture(params=[Isolation.OFF, Isolation.AUTO], ids=["open", "confined"])
def theatre(emptied_database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Theatre]:
    with open_theatre(emptied_database_url, request.param) as engine:
        yield Theatre(engine, tmp_path / "root")
    assert check_database(emptied_database_url) == []
