"""Let programs in by tokens: named, hashed, with scopes, an end and a limit."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "tokens",
    needs=("approvers",),
    engine_calls=("lcp_engine.features.tokens.calls:TokenCalls",),
    commands={
        "tokens": (
            "Decide",
            "lcp_engine.features.tokens.commands:tokens_command",
            "Let programs in by tokens: add, list, remove.",
        ),
    },
    tables={"tokens": ("lcp_engine.features.tokens.store:tokens", "")},
    codes={
        "TOKEN_REFUSED": "lcp_engine.features.tokens.calls:TOKEN_REFUSED",
        "TOO_MANY_REQUESTS": "lcp_engine.features.tokens.calls:TOO_MANY_REQUESTS",
    },
)
