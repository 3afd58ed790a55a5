"""Back up, prune and check the database regularly."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "upkeep",
    needs=("memory", "programs", "stages"),
    chores=("lcp_engine.runner.upkeep:chores",),
    tables={"upkeep": ("lcp_engine.store.upkeep:upkeep", "")},
    left_overs=("lcp_engine.cli.upkeep:left_over_lines",),
    duties=("lcp_engine.cli.upkeep:upkeep_facts",),
)
