"""Measure planners on missions whose results are known."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "evaluation",
    needs=("models", "programs"),
    commands={
        "eval": (
            "Without a mission",
            "lcp_engine.features.evaluation.commands:eval_command",
            "Measure planners on missions whose results are known.",
        ),
    },
    pages={"/evals": "lcp_engine.features.evaluation.pages:evals"},
)
