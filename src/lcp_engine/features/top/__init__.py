"""Watch missions and decide on held jobs, full screen."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "top",
    needs=("reports", "rules"),
    commands={
        "top": (
            "Inspect",
            "lcp_engine.features.top.command:top_command",
            "Watch missions and decide on held jobs, full screen.",
        ),
    },
)
