"""End missions with a commit in the repository of their root, and undo them with its revert."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "git",
    needs=("programs", "stages"),
    engine_kinds={
        "commit": (
            "lcp_engine.features.git.rules:COMMIT",
            "lcp_engine.features.git.commit:CARRIED_OUT",
        )
    },
    observers=("lcp_engine.features.git.commit:OBSERVER",),
    engine_calls=("lcp_engine.features.git.calls:GitCalls",),
    mission_keys={"git": ("lcp_engine.features.git.rules:GitKeys", "planner")},
    mission_checks=("lcp_engine.features.git.rules:check_mission",),
)
