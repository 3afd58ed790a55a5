"""Report what missions did, wrote and left open."""

from __future__ import annotations

from lcp_engine.features import Feature

FEATURE = Feature(
    "reports",
    history_calls=("lcp_engine.api.reports_of:ReportCalls",),
)
