"""Run finished missions again without a planner, and begin new ones in the middle of them."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "replay",
    needs=("plans", "rules"),
    engine_calls=("lcp_engine.features.replay.calls:ReplayCalls",),
    commands={
        "replay": (
            "Run again",
            "lcp_engine.features.replay.commands:replay_command",
            "Run a finished mission again from its history, without a model.",
        ),
        "fork": (
            "Run again",
            "lcp_engine.features.replay.commands:fork_command",
            "Start a new mission from a turn of another one.",
        ),
    },
    pages={
        "/missions/{mission}/fork": "lcp_engine.features.replay.pages:fork_form",
        "/missions/{mission}/replay": "lcp_engine.features.replay.pages:replay_form",
    },
    actions={
        "/missions/{mission}/fork": "lcp_engine.features.replay.pages:fork",
        "/missions/{mission}/replay": "lcp_engine.features.replay.pages:replay",
    },
)
