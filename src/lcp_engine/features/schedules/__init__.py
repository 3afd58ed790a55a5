"""Launch missions regularly."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "schedules",
    chores=("lcp_engine.features.schedules.schedules:chores",),
    engine_calls=("lcp_engine.features.schedules.calls:ScheduleCalls",),
    commands={
        "schedule": (
            "Run missions",
            "lcp_engine.features.schedules.commands:schedule_command",
            "Launch a mission regularly: add, list, remove, run-now.",
        ),
    },
    tables={"schedules": ("lcp_engine.features.schedules.store:schedules", "")},
)
