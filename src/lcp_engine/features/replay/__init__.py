"""Run finished missions again without a planner, and begin new ones in the middle of them."""

from __future__ import annotations

from lcp_engine.features import Feature

FEATURE = Feature(
    "replay",
    needs=("plans", "rules"),
    engine_calls=("lcp_engine.api.replays:ReplayCalls",),
)
