"""Tell a webhook or a command when missions begin to wait for a person."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "notices",
    needs=("approvers", "models"),
    note_waits="lcp_engine.features.notices.store.deliveries:note_waits",
    chores=("lcp_engine.features.notices.on_wait_hook:chores",),
    history_calls=("lcp_engine.features.notices.calls:DeliveryCalls",),
    commands={
        "deliveries": (
            "Inspect",
            "lcp_engine.features.notices.commands:deliveries_command",
            "List the notices for the webhook, and what became of them.",
        ),
    },
    findings=("lcp_engine.features.notices.commands:examine_webhook",),
    settings={
        "on_wait": ("lcp_engine.features.notices.settings:NoticeSettings", ""),
        "webhook": ("lcp_engine.features.notices.settings:NoticeSettings", ""),
    },
    tables={"deliveries": ("lcp_engine.features.notices.store.deliveries:deliveries", "mission_id")},
    codes={"WEBHOOK_FAILED": "lcp_engine.features.notices.commands:WEBHOOK_FAILED"},
)
