"""Tell a webhook or a command when missions begin to wait for a person."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "notices",
    needs=("approvers", "models"),
    note_waits="lcp_engine.store.deliveries:note_waits",
    chores=("lcp_engine.runner.on_wait_hook:chores",),
    history_calls=("lcp_engine.api.deliveries:DeliveryCalls",),
    commands={
        "deliveries": (
            "Inspect",
            "lcp_engine.cli.deliveries:deliveries_command",
            "List the notices for the webhook, and what became of them.",
        ),
    },
    tables={"deliveries": ("lcp_engine.store.deliveries:deliveries", "mission_id")},
)
