"""Let an agent that speaks the Agent Client Protocol be the planner, in the stage of its mission."""

from __future__ import annotations

from lcp_engine.feature import Feature

_CALLS = "lcp_engine.features.acp_planner.kinds"

FEATURE = Feature(
    "acp_planner",
    needs=("agents", "programs"),
    planners={"acp": "lcp_engine.features.acp_planner.planner:AcpPlanner"},
    engine_kinds={
        kind: (f"{_CALLS}:{kind.upper()}", f"{_CALLS}:CARRIED_OUT")
        for kind in (
            "agent_read",
            "agent_search",
            "agent_edit",
            "agent_delete",
            "agent_move",
            "agent_run",
            "agent_fetch",
            "agent_call",
        )
    },
    codes={"OUTCOME_UNKNOWN": f"{_CALLS}:OUTCOME_UNKNOWN"},
    end_gates=(f"{_CALLS}:GATE",),
    mission_checks=("lcp_engine.features.acp_planner.planner:check_mission",),
)
