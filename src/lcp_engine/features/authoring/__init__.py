"""Help to write missions and replies, and try them and single jobs."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "authoring",
    needs=("models", "notices", "plans", "programs", "universal"),
    commands={
        "init": (
            "Run missions",
            "lcp_engine.features.authoring.init:init_command",
            "Write a mission file by asking.",
        ),
        "validate": (
            "Without a mission",
            "lcp_engine.features.authoring.validate:validate_command",
            "Check a mission and print what it would do; launch nothing.",
        ),
        "check": (
            "Without a mission",
            "lcp_engine.features.authoring.check:check_command",
            "Check whether replies are valid; execute nothing.",
        ),
        "try": (
            "Without a mission",
            "lcp_engine.features.authoring.check:try_command",
            "Run one job now, outside any mission.",
        ),
        "kinds": (
            "Without a mission",
            "lcp_engine.features.authoring.kinds:kinds_command",
            "List the kinds of jobs, describe one, or run their examples.",
        ),
        "schema": (
            "Without a mission",
            "lcp_engine.features.authoring.schema:schema_command",
            "Print a published JSON Schema.",
        ),
    },
)
