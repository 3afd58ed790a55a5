"""Let missions work in a private copy of their root until a person approves the merge."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "stages",
    needs=("programs",),
    askers={"merge": "lcp_engine.features.stages.merges:ASKER"},
    end_gates=("lcp_engine.features.stages.merges:GATE",),
    engine_kinds={
        "merge": (
            "lcp_engine.features.stages.merge_worker:MERGE",
            "lcp_engine.features.stages.merge:CARRIED_OUT",
        )
    },
    mission_keys={"stage": ("lcp_engine.features.stages.mission_keys:StageKeys", "planner")},
    root_provider="lcp_engine.features.stages.stages:ROOT_PROVIDER",
    chores=("lcp_engine.features.stages.stages:chores",),
)
