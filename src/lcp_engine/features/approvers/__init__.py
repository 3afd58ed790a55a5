"""Let several people, or certain ones, decide about jobs, also from afar by signed links."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "approvers",
    needs=("rules", "stages"),
    decision_gate="lcp_engine.engine.consents:GATE",
    engine_calls=("lcp_engine.api.decision_links:LinkCalls",),
    commands={
        "link": (
            "Decide",
            "lcp_engine.cli.links:link_command",
            "Print a signed link that decides one held job.",
        ),
        "approvers": (
            "Decide",
            "lcp_engine.cli.approvers:approvers_command",
            "Name the people who decide from afar: add, list, remove.",
        ),
    },
    routes=("lcp_engine.web.links:ROUTES",),
    tables={"used_links": ("lcp_engine.store.used_links:used_links", "job_id")},
)
