"""Remember facts about roots, which missions propose and people correct."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "memory",
    needs=("models", "universal"),
    observers=("lcp_engine.features.memory.lessons:OBSERVER",),
    sections=("lcp_engine.features.memory.remember:SECTION",),
    mission_keys={"memory": ("lcp_engine.features.memory.mission_keys:MemoryKeys", "commands")},
    kinds={"remember": "lcp_engine.features.memory.worker:WORKER"},
    engine_calls=("lcp_engine.features.memory.calls:MemoryCalls",),
    commands={
        "memory": (
            "Inspect",
            "lcp_engine.features.memory.commands:memory_command",
            "See, correct and forget what is remembered of roots.",
        ),
    },
    pages={
        "/memory": "lcp_engine.features.memory.pages:memory_list",
        "/memory/{entry}": "lcp_engine.features.memory.pages:memory_entry",
    },
    actions={
        "/memory/{entry}/edit": "lcp_engine.features.memory.pages:edit",
        "/memory/{entry}/forget": "lcp_engine.features.memory.pages:forget",
    },
    tables={
        "memory_roots": ("lcp_engine.features.memory.store.memories:memory_roots", ""),
        "memories": ("lcp_engine.features.memory.store.memories:memories", ""),
    },
)
