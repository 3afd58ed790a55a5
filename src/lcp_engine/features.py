"""List what the shipped features add to the kernel, as `module:attribute`: each is loaded when it is first used."""

from __future__ import annotations

from collections.abc import Mapping

STEPS = "lcp_engine.engine.plan_course:STEPS"
"""The type of plans whose steps are stated."""
ASKERS: Mapping[str, str] = {"merge": "lcp_engine.engine.merges:ASKER"}
"""What a person's decision on jobs of a kind does to the end of the mission."""
END_GATES = ("lcp_engine.engine.merges:GATE",)
"""What a mission waits for before it ends, in this order."""
