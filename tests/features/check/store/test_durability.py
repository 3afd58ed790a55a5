"""What weakens the promise of a commit, and cannot be set on a connection, is reported."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from tests.conftest import sqlite_url

from lcp_engine.cli.commands.doctor import examine_root
from lcp_engine.features.check.installation import examine_database, examine_runtime
from lcp_engine.features.check.store.durability import weaknesses
from lcp_engine.sandbox.system.file_systems import shared_file_system
from lcp_engine.settings import read_settings
from lcp_engine.store.db.open import open_database


def test_a_server_that_does_not_wait_for_its_disk_is_reported(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SHOW fsync").fetchone()
    found = [weakness.fact for weakness in weaknesses(postgres_url)]
    assert any(fact.startswith("fsync of the server is off") for fact in found) == (row == ("off",))


def test_places_on_a_network_file_system_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sqlite_url(tmp_path)
    open_database(url).close()
    assert shared_file_system(tmp_path) is None
    assert weaknesses(url) == []
    monkeypatch.setattr("lcp_engine.sandbox.system.file_systems.file_system_type", lambda path: 0x6969)
    assert "lcp.db is on NFS" in weaknesses(url)[0].fact
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("LCP_CONFIG", str(tmp_path / "none.yaml"))
    found = [
        one for examine in (examine_database, examine_runtime) for one in examine(url, read_settings(), True)
    ]
    found += examine_root(tmp_path)
    on_nfs = [finding.about for finding in found if "is on NFS" in finding.fact]
    assert on_nfs == ["durability", "runtime directory", "root"]
