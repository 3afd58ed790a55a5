"""Let an editor be the person who launches missions and decides (Agent Client Protocol)."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "editors",
    needs=("plans", "rules"),
    commands={
        "acp": (
            "Run missions",
            "lcp_engine.features.editors.command:acp_command",
            "Serve an editor that speaks the Agent Client Protocol.",
        ),
    },
)
