"""Explain which rule decides about a job, and add rules that let jobs like it run."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "rules",
    engine_calls=("lcp_engine.features.rules.calls:RuleCalls",),
    commands={
        "policy": (
            "Decide",
            "lcp_engine.features.rules.commands:policy_command",
            "Explain which rule decides about a job.",
        ),
    },
)
