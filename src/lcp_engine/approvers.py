"""Signed links, each of which decides one held job."""

from __future__ import annotations

from lcp_engine.features.approvers.calls import DecisionLinks, LinkedJob

__all__ = [
    "DecisionLinks",
    "LinkedJob",
]
