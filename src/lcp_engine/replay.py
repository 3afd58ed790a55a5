"""Replays and forks of missions."""

from __future__ import annotations

from lcp_engine.features.replay.compare import Difference
from lcp_engine.features.replay.fork import Drift, Forked
from lcp_engine.features.replay.replay import Replayed

__all__ = [
    "Difference",
    "Drift",
    "Forked",
    "Replayed",
]
