"""Serve a page on which people look at missions and decide."""

from __future__ import annotations

from lcp_engine.features import Feature

FEATURE = Feature(
    "web", tables={"viewed_files": ("lcp_engine.store.viewed_files:viewed_files", "mission_id")}
)
