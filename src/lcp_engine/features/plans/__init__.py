"""Carry out plans, whose steps a mission or a planner states."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "plans",
    plan_type="lcp_engine.features.plans.course:STEPS",
    mission_keys={
        "plan": ("lcp_engine.features.plans.stated_plan:PlanKeys", "root_aliases"),
        "fallback_plans": ("lcp_engine.features.plans.stated_plan:PlanKeys", "plan"),
    },
    order_reader="lcp_engine.features.plans.answered_plan:READER",
    history_calls=("lcp_engine.features.plans.calls:GraphCalls",),
    commands={
        "plan": (
            "Inspect",
            "lcp_engine.features.plans.commands:plan_command",
            "Check the plan of a file, show that of a mission as a graph.",
        ),
    },
    tables={"stated_plans": ("lcp_engine.features.plans.store.stated_plans:stated_plans", "mission_id")},
    codes={"OUTPUT_NOT_FOUND": "lcp_engine.features.plans.steps:OUTPUT_NOT_FOUND"},
)
