"""Launch missions regularly."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "schedules",
    needs=("plans",),
    chores=("lcp_engine.engine.schedules:chores",),
    engine_calls=("lcp_engine.api.schedules:ScheduleCalls",),
    commands={
        "schedule": (
            "Run missions",
            "lcp_engine.cli.schedule:schedule_command",
            "Launch a mission regularly: add, list, remove, run-now.",
        ),
    },
    tables={"schedules": ("lcp_engine.store.schedules:schedules", "")},
)
