"""Kinds that external programs and MCP servers offer."""
