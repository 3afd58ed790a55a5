"""Show planners the instructions that a root holds: AGENTS.md, and the names of skills."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "instructions",
    launch_notes={
        "instructions": (
            "lcp_engine.features.instructions.look:look",
            "lcp_engine.features.instructions.found:told",
        )
    },
    sections=("lcp_engine.features.instructions.look:SECTION",),
    mission_keys={"instructions": ("lcp_engine.features.instructions.found:InstructionKeys", "commands")},
)
