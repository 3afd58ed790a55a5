"""Ask language models, or people at a terminal, as planners."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "models",
    needs=("universal",),
    refuse_echo="lcp_engine.planners.llm.instructions:refuse_echo",
    probes="lcp_engine.store.endpoint_probes:StoredProbeCache",
    tables={"probes": ("lcp_engine.store.endpoint_probes:probes", "")},
    planners={
        "anthropic": "lcp_engine.planners.llm.factories:AnthropicPlanner",
        "human": "lcp_engine.planners.llm.human:HumanPlanner",
        "local": "lcp_engine.planners.llm.local:LocalPlanner",
        "openai": "lcp_engine.planners.llm.factories:OpenAIPlanner",
    },
)
