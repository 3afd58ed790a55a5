"""Schedules, which launch missions regularly."""

from __future__ import annotations

from lcp_engine.features.schedules.schedules import Overlap
from lcp_engine.store.queries.records import Schedule

__all__ = [
    "Overlap",
    "Schedule",
]
