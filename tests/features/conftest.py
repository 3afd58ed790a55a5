"""Fixtures of the rooms of the kernel, for the tests of features, which have rooms of the same names."""

from __future__ import annotations

from tests.cli.conftest import lcp, lcp_with_plugin
from tests.engine.conftest import _scribe, lab, open_lab, walls
from tests.runner.conftest import ground, theatre
from tests.store.conftest import database, open_another
from tests.web.conftest import house

__all__ = [
    "_scribe",
    "database",
    "ground",
    "house",
    "lab",
    "lcp",
    "lcp_with_plugin",
    "open_another",
    "open_lab",
    "theatre",
    "walls",
]
