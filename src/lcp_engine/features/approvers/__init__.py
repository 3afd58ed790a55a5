"""Let several people, or certain ones, decide about jobs, also from afar by signed links."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "approvers",
    needs=("rules", "stages"),
    decision_gate="lcp_engine.features.approvers.consents:GATE",
    engine_calls=("lcp_engine.features.approvers.calls:LinkCalls",),
    commands={
        "link": (
            "Decide",
            "lcp_engine.features.approvers.link_commands:link_command",
            "Print a signed link that decides one held job.",
        ),
        "approvers": (
            "Decide",
            "lcp_engine.features.approvers.commands:approvers_command",
            "Name the people who decide from afar: add, list, remove.",
        ),
    },
    findings=("lcp_engine.features.approvers.secret_keys:examine_links",),
    settings={
        "links": ("lcp_engine.features.approvers.settings:ApproverSettings", ""),
        "approvers": ("lcp_engine.features.approvers.settings:ApproverSettings", ""),
    },
    routes=("lcp_engine.features.approvers.pages:ROUTES",),
    tables={"used_links": ("lcp_engine.features.approvers.store:used_links", "job_id")},
    codes={"LINK_REFUSED": "lcp_engine.features.approvers.link_decisions:LINK_REFUSED"},
)
