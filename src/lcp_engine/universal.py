"""Requests to an agent that speaks the universal dialect."""

from __future__ import annotations

from lcp_engine.features.universal.request import (
    AgentRequest,
    CursorPosition,
    RequestEnvironment,
    RequestMetadata,
    RequestProject,
)

__all__ = [
    "AgentRequest",
    "CursorPosition",
    "RequestEnvironment",
    "RequestMetadata",
    "RequestProject",
]
