"""Carry out plans, whose steps a mission or a planner states."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "plans",
    plan_type="lcp_engine.engine.plan_course:STEPS",
    stated_plan="lcp_engine.core.mission.plan:StatedPlan",
    order_reader="lcp_engine.core.protocol.answered_plan:READER",
    history_calls=("lcp_engine.api.plan_graphs:GraphCalls",),
    commands={
        "plan": (
            "Inspect",
            "lcp_engine.cli.plan:plan_command",
            "Check the plan of a file, show that of a mission as a graph.",
        ),
    },
    tables={"stated_plans": ("lcp_engine.store.stated_plans:stated_plans", "mission_id")},
)
