"""Report what missions did, wrote and left open."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "reports",
    drafts="lcp_engine.features.reports.store.drafts:StoredDrafts",
    tables={"drafts": ("lcp_engine.features.reports.store.drafts:drafts", "mission_id")},
    history_calls=("lcp_engine.features.reports.calls:ReportCalls",),
)
