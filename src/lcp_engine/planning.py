"""Parts of what planners are asked and answer, and of how they fail."""

from __future__ import annotations

from lcp_engine.planners.base import (
    AskedToWait,
    CompletionRecord,
    Correction,
    Fault,
    Kind,
    LeftOut,
    PromptRecord,
    Relayed,
    Said,
    SeenJob,
    SeenMemory,
)

__all__ = [
    "AskedToWait",
    "CompletionRecord",
    "Correction",
    "Fault",
    "Kind",
    "LeftOut",
    "PromptRecord",
    "Relayed",
    "Said",
    "SeenJob",
    "SeenMemory",
]
