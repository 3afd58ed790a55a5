"""Check that a database is consistent, and measure it."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "check",
    commands={
        "db check": (
            "db",
            "lcp_engine.features.check.commands:check_command",
            "Check that the database is consistent.",
        ),
        "db stats": (
            "db",
            "lcp_engine.features.check.commands:stats_command",
            "Print the size of the database and what it holds.",
        ),
    },
    findings=(
        "lcp_engine.features.check.installation:examine_database",
        "lcp_engine.features.check.installation:examine_runtime",
    ),
)
