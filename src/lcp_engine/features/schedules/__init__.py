"""Launch missions regularly."""

from __future__ import annotations

from lcp_engine.features import Feature

FEATURE = Feature(
    "schedules",
    needs=("plans",),
    chores=("lcp_engine.engine.schedules:chores",),
    engine_calls=("lcp_engine.api.schedules:ScheduleCalls",),
)
