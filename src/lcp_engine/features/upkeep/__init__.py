"""Back up, prune and check the database regularly."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "upkeep",
    needs=("check", "memory", "programs", "stages"),
    commands={
        "db backup": (
            "db",
            "lcp_engine.features.upkeep.commands:backup_command",
            "Copy the database to FILE while it is in use.",
        ),
        "db prune": (
            "db",
            "lcp_engine.features.upkeep.commands:prune_command",
            "Remove missions that ended long ago.",
        ),
    },
    chores=("lcp_engine.features.upkeep.chores:chores",),
    findings=("lcp_engine.features.upkeep.commands:examine_upkeep",),
    settings={
        "retention": ("lcp_engine.features.upkeep.settings:Upkeep", "LCP_RETENTION"),
        "backup": ("lcp_engine.features.upkeep.settings:Upkeep", "LCP_BACKUP"),
        "check": ("lcp_engine.features.upkeep.settings:Upkeep", "LCP_CHECK"),
    },
    tables={"upkeep": ("lcp_engine.features.upkeep.store.upkeep:upkeep", "")},
    left_overs=("lcp_engine.features.upkeep.commands:left_over_lines",),
    duties=("lcp_engine.features.upkeep.commands:upkeep_facts",),
)
