"""Schedules, which launch missions regularly."""

from __future__ import annotations

from lcp_engine.features.schedules.calls import Schedule
from lcp_engine.features.schedules.schedules import Overlap

__all__ = [
    "Overlap",
    "Schedule",
]
