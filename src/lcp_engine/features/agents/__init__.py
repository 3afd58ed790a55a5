"""Let agents that people have be the planners of missions, at work in the stage behind the wall."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "agents",
    needs=("models", "programs", "stages"),
    planners={"program": "lcp_engine.features.agents.program:ProgramPlanner"},
    findings=("lcp_engine.features.agents.program:examine_agents",),
    mission_checks=("lcp_engine.features.agents.program:check_mission",),
)
