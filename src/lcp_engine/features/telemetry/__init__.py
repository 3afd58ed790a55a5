"""State figures, health and traces of the engine for programs that watch it."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "telemetry",
    needs=("models",),
    chores=("lcp_engine.features.telemetry.meters:chores",),
    routes=("lcp_engine.web.pages.overview:WATCHED_ROUTES",),
)
