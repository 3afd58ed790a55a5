"""Count what happens over time, and chart it on the page."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "activity",
    chores=("lcp_engine.features.activity.charts:chores",),
    tables={"activity": ("lcp_engine.features.activity.store:activity", "")},
)
