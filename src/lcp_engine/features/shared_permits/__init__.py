"""Limit the jobs that all runners together may start."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "shared_permits",
    claim_gate="lcp_engine.features.shared_permits.store:GATE",
    tables={"limits": ("lcp_engine.features.shared_permits.store:limits", "mission_id")},
)
