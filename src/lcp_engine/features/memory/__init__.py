"""Remember facts about roots, which missions propose and people correct."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "memory",
    needs=("models", "universal"),
    observers=("lcp_engine.engine.lessons:OBSERVER",),
    sections=("lcp_engine.engine.memory:SECTION",),
    kinds={"remember": "lcp_engine.workers.remember:WORKER"},
    engine_calls=("lcp_engine.api.memory:MemoryCalls",),
    commands={
        "memory": (
            "Inspect",
            "lcp_engine.cli.memory:memory_command",
            "See, correct and forget what is remembered of roots.",
        ),
    },
    pages={
        "/memory": "lcp_engine.web.memory:memory_list",
        "/memory/{entry}": "lcp_engine.web.memory:memory_entry",
    },
    actions={
        "/memory/{entry}/edit": "lcp_engine.web.memory:edit",
        "/memory/{entry}/forget": "lcp_engine.web.memory:forget",
    },
    tables={
        "memory_roots": ("lcp_engine.store.memories:memory_roots", ""),
        "memories": ("lcp_engine.store.memories:memories", ""),
    },
)
