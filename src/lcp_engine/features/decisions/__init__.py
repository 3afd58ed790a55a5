"""List who decided what, over all missions."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "decisions",
    history_calls=("lcp_engine.features.decisions.calls:DecisionCalls",),
    commands={
        "decisions": (
            "Inspect",
            "lcp_engine.features.decisions.commands:decisions_command",
            "List who approved, rejected or answered what, in all missions.",
        ),
    },
    pages={"/decisions": "lcp_engine.features.decisions.pages:decisions"},
)
