"""Read requests and write responses of the universal protocol."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "universal",
    needs=("reports",),
    readers={"universal": "lcp_engine.features.universal.dialect:READER"},
)
