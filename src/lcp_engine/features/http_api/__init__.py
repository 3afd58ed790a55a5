"""Let programs look, launch and decide over HTTP, below `/v1` of the page's server."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "http_api",
    needs=("activity", "authoring", "memory", "models", "programs", "reports", "rules", "tokens"),
    tables={"api_writes": ("lcp_engine.features.http_api.store:api_writes", "")},
    doors={"/v1": "lcp_engine.features.http_api.server:open_api"},
    settings={"serve": ("lcp_engine.features.http_api.settings:ApiSettings", "")},
)
