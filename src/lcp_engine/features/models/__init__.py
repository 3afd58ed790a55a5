"""Ask language models, or people at a terminal, as planners."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "models",
    needs=("universal",),
    refuse_echo="lcp_engine.features.models.prompts.instructions:refuse_echo",
    probes="lcp_engine.features.models.store:StoredProbeCache",
    findings=("lcp_engine.features.models.examination:examine_probes",),
    tables={"probes": ("lcp_engine.features.models.store:probes", "")},
    planners={
        "anthropic": "lcp_engine.features.models.factories:AnthropicPlanner",
        "human": "lcp_engine.features.models.human:HumanPlanner",
        "local": "lcp_engine.features.models.local:LocalPlanner",
        "openai": "lcp_engine.features.models.factories:OpenAIPlanner",
    },
    codes={"ECHO": "lcp_engine.features.models.prompts.instructions:ECHO"},
)
