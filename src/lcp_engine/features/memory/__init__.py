"""Remember facts about roots, which missions propose and people correct."""

from __future__ import annotations

from lcp_engine.features import Feature

FEATURE = Feature(
    "memory",
    needs=("models", "universal"),
    observers=("lcp_engine.engine.lessons:OBSERVER",),
    section="lcp_engine.engine.memory:SECTION",
    kinds=("lcp_engine.workers.remember:WORKER",),
    engine_calls=("lcp_engine.api.memory:MemoryCalls",),
)
