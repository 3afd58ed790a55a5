"""Query the plans of missions as graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcp_engine.api.kernel_history import KernelHistory
from lcp_engine.features.plans.store.graph import find_plan_graphs

if TYPE_CHECKING:
    from lcp_engine.features.plans.graph import PlanGraph


class GraphCalls(KernelHistory):
    """Calls about plans."""

    def plan_graphs(self, mission_id: int) -> list[PlanGraph]:
        """The plans of the mission whose steps follow each other, as graphs. Raises `NOT_FOUND`."""
        return self._read(find_plan_graphs, mission_id)
