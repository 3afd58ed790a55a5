"""Let missions work in a private copy of their root until a person approves the merge."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "stages",
    needs=("programs",),
    askers={"merge": "lcp_engine.engine.merges:ASKER"},
    end_gates=("lcp_engine.engine.merges:GATE",),
    engine_kinds={"merge": ("lcp_engine.workers.merge:MERGE", "lcp_engine.changes.merge:CARRIED_OUT")},
    root_provider="lcp_engine.changes.stages:ROOT_PROVIDER",
    chores=("lcp_engine.changes.stages:chores",),
)
