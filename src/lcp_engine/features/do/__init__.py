"""Launch missions without a file."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "do",
    needs=("authoring",),
    commands={
        "do": (
            "Run missions",
            "lcp_engine.features.do.commands:do_command",
            "Launch a mission without a file: its goal is on the command line.",
        ),
    },
)
