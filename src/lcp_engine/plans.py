"""Plans of missions: as a file states them, and as graphs."""

from __future__ import annotations

from lcp_engine.features.plans.graph import GraphStep, Link, PlanGraph
from lcp_engine.features.plans.stated_plan import (
    StatedCondition,
    StatedErrorHandling,
    StatedPlan,
    StatedRetry,
    StatedStep,
)

__all__ = [
    "GraphStep",
    "Link",
    "PlanGraph",
    "StatedCondition",
    "StatedErrorHandling",
    "StatedPlan",
    "StatedRetry",
    "StatedStep",
]
