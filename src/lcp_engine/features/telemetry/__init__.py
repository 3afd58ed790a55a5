"""State figures and health of the engine for programs that watch it."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "telemetry",
    routes=("lcp_engine.web.overview:WATCHED_ROUTES",),
)
