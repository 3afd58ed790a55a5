"""Serve missions to clients of the Model Context Protocol (MCP)."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature(
    "mcp_server",
    needs=("models", "reports", "tokens"),
    commands={
        "mcp": (
            "Inspect",
            "lcp_engine.features.mcp_server.command:mcp_command",
            "Serve missions to an agent or editor that speaks MCP.",
        ),
    },
    doors={"/mcp": "lcp_engine.features.mcp_server.command:open_mcp"},
    settings={"mcp": ("lcp_engine.features.mcp_server.settings:McpSettings", "")},
)
